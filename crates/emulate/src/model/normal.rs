//! The standard normal distribution, with the same last bit on every machine: only operations that
//! IEEE 754 rounds exactly, and logarithm and error function of a library that is compiled in.

/// The value below which a share `p` (above 0, below 1) lies: Wichura, AS 241, PPND16; relative error
/// about 1e-16.
pub(crate) fn quantile(p: f64) -> f64 {
    let from_middle = p - 0.5;
    if from_middle.abs() <= 0.425 {
        let r = 0.180625 - from_middle * from_middle;
        return from_middle * polynomial(&A, r) / polynomial(&B, r);
    }
    let tail = if from_middle < 0.0 { p } else { 1.0 - p };
    let r = (-libm::log(tail)).sqrt();
    let value = if r <= 5.0 {
        polynomial(&C, r - 1.6) / polynomial(&D, r - 1.6)
    } else {
        polynomial(&E, r - 5.0) / polynomial(&F, r - 5.0)
    };
    if from_middle < 0.0 { -value } else { value }
}

/// The share that lies above `z`.
pub(crate) fn above(z: f64) -> f64 {
    0.5 * libm::erfc(z * std::f64::consts::FRAC_1_SQRT_2)
}

/// By Horner; the constant term comes first.
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

const A: [f64; 8] = [
    3.3871328727963665,
    133.14166789178438,
    1971.5909503065513,
    13731.69376550946,
    45921.95393154987,
    67265.7709270087,
    33430.57558358813,
    2509.0809287301227,
];
const B: [f64; 8] = [
    1.0,
    42.31333070160091,
    687.1870074920579,
    5394.196021424751,
    21213.794301586597,
    39307.89580009271,
    28729.085735721943,
    5226.495278852854,
];
const C: [f64; 8] = [
    1.4234371107496835,
    4.630337846156546,
    5.769497221460691,
    3.6478483247632045,
    1.2704582524523684,
    0.2417807251774506,
    0.022723844989269184,
    0.0007745450142783414,
];
const D: [f64; 8] = [
    1.0,
    2.053191626637759,
    1.6763848301838038,
    0.6897673349851,
    0.14810397642748008,
    0.015198666563616457,
    0.0005475938084995345,
    1.0507500716444169e-09,
];
const E: [f64; 8] = [
    6.657904643501103,
    5.463784911164114,
    1.7848265399172913,
    0.29656057182850487,
    0.026532189526576124,
    0.0012426609473880784,
    2.7115555687434876e-05,
    2.0103343992922881e-07,
];
const F: [f64; 8] = [
    1.0,
    0.599832206555888,
    0.1369298809227358,
    0.014875361290850615,
    0.0007868691311456133,
    1.8463183175100548e-05,
    1.421511758316446e-07,
    2.0442631033899397e-15,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, z) in [
            (0.5, 0.0),
            (0.75, 0.674_489_750_196_081_7),
            (0.975, 1.959_963_984_540_054),
            (0.999, 3.090_232_306_167_813_5),
            (1e-9, -5.997_807_015_007_687),
            (1e-15, -7.941_345_326_170_997),
        ] {
            assert!((quantile(p) - z).abs() <= 1e-14 * z.abs(), "{p}: {}", quantile(p));
        }
    }

    #[test]
    fn there_and_back_is_the_same() {
        for step in 1..10_000 {
            let p = f64::from(step) / 10_000.0;
            let back = above(-quantile(p));
            assert!((back - p).abs() <= 1e-14, "{p}: {back}");
        }
    }
}
