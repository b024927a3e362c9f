//! A predicate's reverse Polish notation means what the text means: random expressions, written
//! with no more parentheses than C needs, against an evaluation of the expression itself.

use std::fmt::Write as _;

use loopscope_predicate::{DEEPEST, MOST_TOKENS, Predicate};
use loopscope_time::Frequency;
use proptest::prelude::*;

const OPERATORS: [(&str, u8); 14] = [
    ("||", 0),
    ("&&", 1),
    ("|", 2),
    ("&", 3),
    ("==", 4),
    ("!=", 4),
    ("<", 5),
    ("<=", 5),
    (">", 5),
    (">=", 5),
    ("+", 6),
    ("-", 6),
    ("*", 7),
    ("%", 7),
];

/// Above every binary operator.
const UNARY: u8 = 8;

#[derive(Clone, Debug)]
enum Expression {
    Id,
    Field(usize),
    Integer(i64),
    Microseconds(u32),
    Not(Box<Expression>),
    Binary(usize, Box<Expression>, Box<Expression>),
}

use Expression::{Binary, Field, Id, Integer, Microseconds, Not};

const FIELDS: [&str; 3] = ["size", "identity", "_x9"];
/// Three ticks to the microsecond.
const HZ: u64 = 3_000_000;

fn frequency() -> Frequency {
    Frequency::from_hz(HZ).unwrap()
}

fn expressions() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        Just(Id),
        (0..FIELDS.len()).prop_map(Field),
        (-9i64..10).prop_map(Integer),
        any::<i64>().prop_map(Integer),
        (0u32..5000).prop_map(Microseconds),
    ];
    leaf.prop_recursive(4, 14, 2, |inner| {
        prop_oneof![
            1 => inner.clone().prop_map(|e| Not(Box::new(e))),
            6 => (0..OPERATORS.len(), inner.clone(), inner)
                .prop_map(|(o, a, b)| Binary(o, Box::new(a), Box::new(b))),
        ]
    })
}

/// Writes an expression as a person does: parentheses only where C's precedence needs them, spaces
/// if `blank`.
fn write(expression: &Expression, least: u8, blank: bool, text: &mut String) {
    let space = if blank { " " } else { "" };
    match expression {
        Id => text.push_str("id"),
        Field(at) => text.push_str(FIELDS[*at]),
        Integer(value) => write!(text, "{value}").unwrap(),
        Microseconds(count) => write!(text, "{count}us").unwrap(),
        Not(inner) => {
            text.push('!');
            write(inner, UNARY, blank, text);
        }
        Binary(operator, left, right) => {
            let (name, precedence) = OPERATORS[*operator];
            if precedence < least {
                text.push('(');
            }
            // Left-associative: the right side needs more.
            write(left, precedence, blank, text);
            write!(text, "{space}{name}{space}").unwrap();
            write(right, precedence + 1, blank, text);
            if precedence < least {
                text.push(')');
            }
        }
    }
}

/// `None` where it has no value: a remainder by zero makes all of a predicate false.
fn value(expression: &Expression, id: i64, fields: &[i64; 3]) -> Option<i64> {
    Some(match expression {
        Id => id,
        Field(at) => fields[*at],
        Integer(value) => *value,
        Microseconds(count) => i64::from(*count) * 3,
        Not(inner) => i64::from(value(inner, id, fields)? == 0),
        Binary(operator, left, right) => {
            let (a, b) = (value(left, id, fields)?, value(right, id, fields)?);
            match OPERATORS[*operator].0 {
                "||" => i64::from(a != 0 || b != 0),
                "&&" => i64::from(a != 0 && b != 0),
                "|" => a | b,
                "&" => a & b,
                "==" => i64::from(a == b),
                "!=" => i64::from(a != b),
                "<" => i64::from(a < b),
                "<=" => i64::from(a <= b),
                ">" => i64::from(a > b),
                ">=" => i64::from(a >= b),
                "+" => a.wrapping_add(b),
                "-" => a.wrapping_sub(b),
                "*" => a.wrapping_mul(b),
                "%" if b == 0 => return None,
                "%" => a.wrapping_rem(b),
                other => unreachable!("{other}"),
            }
        }
    })
}

/// What a stack machine makes of the tokens.
fn run(rpn: &str, id: i64, fields: &[i64; 3]) -> Option<i64> {
    let mut stack: Vec<i64> = Vec::new();
    let mut deepest = 0;
    let tokens: Vec<&str> = rpn.split(' ').collect();
    assert!(tokens.len() <= MOST_TOKENS);
    for token in tokens {
        if token == "id" {
            stack.push(id);
        } else if let Some(name) = token.strip_prefix("f:") {
            stack.push(fields[FIELDS.iter().position(|f| *f == name).unwrap()]);
        } else if let Some(digits) = token.strip_prefix("i:") {
            stack.push(digits.parse().unwrap());
        } else if token == "!" {
            let a = stack.pop().unwrap();
            stack.push(i64::from(a == 0));
        } else {
            let (b, a) = (stack.pop().unwrap(), stack.pop().unwrap());
            let operator = OPERATORS.iter().position(|(name, _)| *name == token).unwrap();
            let both = Binary(operator, Box::new(Integer(a)), Box::new(Integer(b)));
            stack.push(value(&both, 0, &[0; 3])?);
        }
        deepest = deepest.max(stack.len());
    }
    assert!(deepest <= DEEPEST);
    assert_eq!(stack.len(), 1, "{rpn}");
    stack.pop()
}

proptest! {
    #[test]
    fn the_notation_means_what_the_text_means(
        expression in expressions(),
        blank: bool,
        id in -20i64..20,
        fields in prop::array::uniform3(prop_oneof![-20i64..20, any::<i64>()]),
    ) {
        let mut text = String::new();
        write(&expression, 0, blank, &mut text);
        match Predicate::parse(&text, frequency()) {
            Ok(predicate) => {
                let got = run(predicate.rpn(), id, &fields);
                prop_assert_eq!(got, value(&expression, id, &fields), "{} {}", text, predicate.rpn());
            }
            Err(error) => prop_assert!(error.what.contains("at most"), "{}", error),
        }
    }

    #[test]
    fn no_text_panics_and_columns_are_inside(text in "[ -~µ]{0,40}") {
        if let Err(error) = Predicate::parse(&text, frequency()) {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{}", error);
        }
    }
}

fn rpn(text: &str) -> String {
    Predicate::parse(text, frequency()).unwrap().rpn().to_owned()
}

#[test]
fn numbers() {
    assert_eq!(rpn("duration > 1ms"), "f:duration i:3000 >");
    assert_eq!(rpn("duration>1.5us"), "f:duration i:5 >");
    assert_eq!(rpn("x == 0xff"), "f:x i:255 ==");
    let bits = (-1.5e-3_f64).to_bits();
    assert_eq!(rpn("x < -1.5e-3"), format!("f:x d:{bits:016x} <"));
    assert_eq!(rpn("x-1"), "f:x i:1 -");
    assert_eq!(rpn("-x == -9223372036854775808"), "i:0 f:x - i:-9223372036854775808 ==");
    // Half a tick is rounded up.
    assert_eq!(rpn("500ns"), "i:2");
}

#[test]
fn mistakes_have_a_column_and_say_what_is_expected() {
    for (text, column, what) in [
        ("", 1, "is expected"),
        ("id = 5", 4, "`==` compares"),
        ("id ==", 6, "a number"),
        ("size > 5 us", 10, "an operator or the end"),
        ("id == 5 5", 9, "an operator or the end"),
        ("(id == 5", 9, "`)` for column 1"),
        ("size > 5m", 9, "`ms`"),
        ("size > 5MB", 9, "`ms`"),
        ("µ > 5", 1, "a field's name"),
        ("a && µ", 6, "a field's name"),
        ("x == 9223372036854775808", 6, "2^63 - 1"),
        ("x == 0x", 6, "hexadecimal"),
        ("a << 2", 4, "a number"),
        ("name == \"x\"", 9, "a number"),
    ] {
        let error = Predicate::parse(text, frequency()).unwrap_err();
        assert_eq!(error.column, column, "{error}");
        assert!(error.what.contains(what), "{error}");
    }
}

#[test]
fn limits() {
    let sum = |n: usize| vec!["id"; n].join(" + ");
    // n operands and n - 1 operators.
    assert!(Predicate::parse(&sum(16), frequency()).is_ok());
    let error = Predicate::parse(&sum(17), frequency()).unwrap_err();
    assert!(error.what.contains("33") && error.what.contains("32"), "{error}");
    let nested = |n: usize| format!("{}id{}", "id+(".repeat(n), ")".repeat(n));
    assert!(Predicate::parse(&nested(15), frequency()).is_ok());
    let deep = format!("{}id", "!".repeat(100_000));
    assert!(Predicate::parse(&deep, frequency()).unwrap_err().what.contains("too deeply"));
    let deep = "(".repeat(100_000);
    assert!(Predicate::parse(&deep, frequency()).unwrap_err().what.contains("too deeply"));
}
