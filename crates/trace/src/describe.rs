//! What people are told about entities.

/// Declares the unit and the description of an entity:
/// `describe!("group", "name", "unit", "description")`. An item; all four are literals.
///
/// ```
/// loopscope_trace::describe!("pipe", "size", "B", "Payload of a message.");
/// loopscope_trace::describe_group!("pipe", "The messages' way round.");
/// ```
#[macro_export]
macro_rules! describe {
    ($group:literal, $name:literal, $unit:literal, $description:literal $(,)?) => {
        $crate::__declaration!(
            DESCRIBE,
            $group,
            $name,
            concat!($unit, "\0", $description, "\0").as_bytes()
        );
    };
}

/// Declares the description of a group: `describe_group!("group", "description")`. An item.
#[macro_export]
macro_rules! describe_group {
    ($group:literal, $description:literal $(,)?) => {
        $crate::describe!($group, "*", "", $description);
    };
}
