//! Output connections and loans.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::slice;

use loopscope_stm::Time;
use loopscope_stm_shared::{Input, Loan, Output, Shared};

use crate::{Place, answer, invalid, shared, take, there, until};

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_output(channel: *const Shared, output: *mut *mut Output) -> c_int {
    answer(|| {
        let place = Place::new(output)?;
        place.give(shared(channel, "the channel")?.output()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_output_leave(output: *mut Output) {
    take(output);
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_put(
    output: *mut Output,
    time: Time,
    half_width: u32,
    bytes: *const c_void,
    length: usize,
    timeout: i64,
) -> c_int {
    answer(|| {
        let output = there(output, "the output")?;
        let bytes = match bytes.is_null() {
            true if length > 0 => return Err(invalid("NULL is given for the bytes")),
            true => &[],
            // SAFETY: the caller has so many bytes there, which nobody writes meanwhile.
            false => unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length) },
        };
        Ok(output.put(time, half_width, bytes, until(timeout))?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_derives(output: *mut Output, input: *mut Input) -> c_int {
    answer(|| {
        let input = there(input, "the input")?;
        Ok(there(output, "the output")?.derives(input)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_bound(output: *mut Output, time: Time) -> c_int {
    answer(|| Ok(there(output, "the output")?.bound(time).map(drop)?))
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_collected(
    output: *mut Output,
    times: *mut Time,
    room: usize,
    count: *mut usize,
) -> c_int {
    answer(|| {
        let count = Place::new(count)?;
        let output = there(output, "the output")?;
        let collected = output.collected(room)?;
        for (place, time) in collected.iter().enumerate() {
            Place::new(times.wrapping_add(place))?.fill(*time);
        }
        count.fill(collected.len());
        Ok(())
    })
}

/// `struct loopscope_stm_loan`: None is one that was put.
type Lent = Option<Loan>;

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_loan(
    output: *mut Output,
    timeout: i64,
    loan: *mut *mut Lent,
    memory: *mut *mut c_void,
) -> c_int {
    answer(|| {
        let (place, memory) = (Place::new(loan)?, Place::new(memory)?);
        let mut lent = there(output, "the output")?.loan(until(timeout))?;
        memory.fill(lent.as_mut_ptr().cast());
        place.give(Some(lent));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_loan_put(
    loan: *mut Lent,
    time: Time,
    half_width: u32,
    length: usize,
    timeout: i64,
) -> c_int {
    answer(|| {
        let kept = there(loan, "the loan")?;
        let lent = kept.take().ok_or_else(|| invalid("the loan has been put"))?;
        lent.put(time, half_width, length, until(timeout)).map_err(|(lent, error)| {
            *kept = Some(lent);
            error
        })?;
        take(loan);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_loan_give_back(loan: *mut Lent) {
    take(loan);
}
