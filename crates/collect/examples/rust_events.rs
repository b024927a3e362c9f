//! A Rust program with each form of the macro; the tests run it and know what it emits.

use loopscope_trace::{event, thread_init};

fn generic<T: loopscope_trace::Field>(id: i64, value: T) {
    event!("rust", "generic", id, value = value);
}

#[inline(always)]
fn inlined(id: u32) {
    event!("rust", "inlined", id);
}

fn counted(evaluations: &mut u32) -> u32 {
    *evaluations += 1;
    *evaluations
}

fn main() {
    thread_init().expect("a thread has a ring, or there is no collector");
    event!("rust", "plain", 1u64);
    event!("rust", "constant", u64::MAX,);
    event!("rust", "literal", 2, size = 3, load = 0.5);
    let (a, b, c, d) = (0xffu8, 0xfffeu16, 0xffff_fffdu32, u64::MAX - 3);
    event!("rust", "unsigned", 3, a = a, b = b, c = c, d = d);
    let (a, b, c, d) = (-1i8, -2i16, -3i32, i64::MIN);
    event!("rust", "signed", 4usize, a = a, b = b, c = c, d = d);
    event!("rust", "float", -5i8, x = 1.5f32, event = -0.1f64);
    event!(
        "rust",
        "eight",
        6,
        f1 = 1u8,
        f2 = 2f64,
        f3 = 3u8,
        f4 = 4u64,
        f5 = 5i16,
        f6 = 6u32,
        f7 = 7f32,
        f8 = 8i64
    );
    generic(7, 1u8);
    generic(8, -1i64);
    generic(9, 2.5f64);
    inlined(10);
    inlined(11);
    let closure = |id: u64| event!("rust", "closure", id, twice = 2 * id);
    closure(12);
    std::thread::scope(|scope| {
        for t in 0..2 {
            scope.spawn(move || {
                for i in 0..1000 {
                    event!("rust", "threads", i, thread = t as u16);
                }
            });
        }
    });
    let mut evaluations = 0;
    event!("off", "evaluated", 0, value = counted(&mut evaluations));
    println!("{evaluations}");
}
