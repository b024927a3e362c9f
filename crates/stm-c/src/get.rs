//! Input connections and items.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use loopscope_stm::{From, Time, Which};
use loopscope_stm_shared::{Input, Item, Kind, Shared};

use crate::{Failure, Place, answer, invalid, shared, take, there, until};

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_input(
    channel: *const Shared,
    start: c_int,
    time: Time,
    lossy: bool,
    holds: u32,
    input: *mut *mut Input,
) -> c_int {
    answer(|| {
        let place = Place::new(input)?;
        let from = match start {
            0 => From::Oldest,
            1 => From::Newest,
            2 => From::Next,
            3 => From::At(time),
            other => return Err(invalid(format!("{other} is no loopscope_stm_start"))),
        };
        place.give(shared(channel, "the channel")?.input(from, lossy, holds)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_input_leave(input: *mut Input) {
    take(input);
}

/// `struct loopscope_stm_item`.
#[repr(C)]
struct Got {
    time: Time,
    put_ns: i64,
    put_error_ns: i64,
    half_width: u32,
    length: usize,
    bytes: *const c_void,
    held: *mut Item,
}

impl Got {
    fn new(item: Item) -> Got {
        Got {
            time: item.time(),
            put_ns: item.put_ns(),
            put_error_ns: item.put_error_ns(),
            half_width: item.half_width(),
            length: item.len(),
            bytes: item.as_ptr().cast(),
            held: Box::into_raw(Box::new(item)),
        }
    }
}

fn get(input: *mut Input, which: Which, timeout: i64, place: *mut Got) -> c_int {
    answer(|| {
        let place = Place::new(place)?;
        place.fill(Got::new(there(input, "the input")?.get(which, until(timeout))?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_get(
    input: *mut Input,
    time: Time,
    timeout: i64,
    item: *mut Got,
) -> c_int {
    get(input, Which::Exact(time), timeout, item)
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_newest(input: *mut Input, timeout: i64, item: *mut Got) -> c_int {
    get(input, Which::Newest, timeout, item)
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_oldest(input: *mut Input, timeout: i64, item: *mut Got) -> c_int {
    get(input, Which::Oldest, timeout, item)
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_unseen(input: *mut Input, timeout: i64, item: *mut Got) -> c_int {
    get(input, Which::Unseen, timeout, item)
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_nearest(
    input: *mut Input,
    time: Time,
    tolerance: u64,
    half_width: u32,
    timeout: i64,
    item: *mut Got,
) -> c_int {
    get(input, Which::Nearest { time, tolerance, half_width }, timeout, item)
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_range(
    input: *mut Input,
    first: Time,
    last: Time,
    items: *mut Got,
    count: *mut usize,
) -> c_int {
    answer(|| {
        let count = there(count, "the pointer to the count")?;
        if *count > 0 {
            Place::new(items)?;
        }
        let got = there(input, "the input")?.range(first, last)?;
        if got.len() > *count {
            let text = format!("there are {} items, and room for {}", got.len(), *count);
            return Err(Failure { kind: Kind::TooMany, text });
        }
        *count = got.len();
        for (place, item) in got.into_iter().enumerate() {
            // SAFETY: the caller has memory for so many there.
            Place::new(unsafe { items.add(place) })?.fill(Got::new(item));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_look(
    input: *mut Input,
    after: *const Time,
    memory: *mut c_void,
    size: usize,
    item: *mut Got,
) -> c_int {
    answer(|| {
        let place = Place::new(item)?;
        let into = match NonNull::new(memory.cast::<u8>()) {
            None if size > 0 => return Err(invalid("NULL is given for the memory")),
            None => &mut [][..],
            // SAFETY: the caller has so many bytes there, and uses them after the call only.
            Some(start) => unsafe { slice::from_raw_parts_mut(start.as_ptr(), size) },
        };
        let after = if after.is_null() { None } else { Some(*shared(after, "the time")?) };
        let look = there(input, "the input")?.look(after, into)?;
        place.fill(Got {
            time: look.time,
            put_ns: look.put_ns,
            put_error_ns: look.put_error_ns,
            half_width: look.half_width,
            length: look.bytes,
            bytes: memory,
            held: ptr::null_mut(),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_release(item: *mut Got) {
    if let Ok(item) = there(item, "the item") {
        item.bytes = ptr::null();
        take(std::mem::replace(&mut item.held, ptr::null_mut()));
    }
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_consume(input: *mut Input, time: Time) -> c_int {
    answer(|| Ok(there(input, "the input")?.consume(time)?))
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_consume_each(
    input: *mut Input,
    times: *const Time,
    count: usize,
) -> c_int {
    answer(|| {
        let input = there(input, "the input")?;
        if count > 0 {
            shared(times, "the times")?;
            // SAFETY: it is not NULL, and there are `count` times.
            input.consume_each(unsafe { std::slice::from_raw_parts(times, count) })?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_consume_until(input: *mut Input, time: Time) -> c_int {
    answer(|| Ok(there(input, "the input")?.consume_until(time)?))
}

/// `struct loopscope_stm_input_counts`.
#[repr(C)]
struct InputCounts {
    floor: Time,
    held: u32,
    lost: u64,
    skipped: u64,
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_input_count(input: *const Input, counts: *mut InputCounts) -> c_int {
    answer(|| {
        let place = Place::new(counts)?;
        let of = shared(input, "the input")?.counts()?;
        let (floor, held) = (of.floor, of.held);
        place.fill(InputCounts { floor, held, lost: of.lost, skipped: of.skipped });
        Ok(())
    })
}
