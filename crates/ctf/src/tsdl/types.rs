//! Types as the metadata writes them, before lengths and tags have their slots.

use std::sync::Arc;

use super::Place;
use super::layout::{Enumeration, Float, Integer, Names};

/// A type. What it is made of is shared by all that use it.
#[derive(Clone, Debug)]
pub(super) enum Type {
    Integer(Integer),
    Enumeration(Integer, Arc<Enumeration>),
    Float(Float),
    String,
    Structure(Arc<StructureType>),
    Variant(Arc<VariantType>, Option<Reference>),
    List(Arc<ListType>),
}

impl Type {
    /// Levels of types in it.
    pub(super) fn depth(&self) -> usize {
        match self {
            Type::Structure(structure) => structure.depth,
            Type::Variant(variant, _) => variant.depth,
            Type::List(list) => list.depth,
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct StructureType {
    pub align: u64,
    pub(super) depth: usize,
    pub members: Vec<MemberType>,
    pub names: Arc<Names>,
}

#[derive(Debug)]
pub(super) struct VariantType {
    pub(super) depth: usize,
    pub options: Vec<MemberType>,
}

#[derive(Clone, Debug)]
pub(super) struct MemberType {
    pub name: String,
    pub place: Place,
    pub field: Type,
}

#[derive(Debug)]
pub(super) struct ListType {
    pub(super) depth: usize,
    pub length: ListLength,
    pub element: Type,
}

#[derive(Debug)]
pub(super) enum ListLength {
    Fixed(u64),
    Of(Reference),
}

/// The path of a length or tag, where it is written.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub place: Place,
    pub path: Vec<String>,
}
