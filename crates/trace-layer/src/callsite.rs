//! The program's callsites that were registered, found by their metadata's address without a lock.

use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_core::Metadata;

use crate::name;
use crate::site::{Kind, Site, Where};
use crate::value::{Hit, Kind as FieldKind, REST};

/// A power of two, twice as many as the core takes.
const PLACES: usize = 8192;

type Place = OnceLock<Box<Callsite>>;

static CALLSITES: OnceLock<Box<[Place]>> = OnceLock::new();
static ADDING: Mutex<()> = Mutex::new(());

/// An event's or a span's.
pub(crate) struct Callsite {
    metadata: &'static Metadata<'static>,
    pub is: Is,
}

pub(crate) enum Is {
    /// A call site for each shape that its values had: `tracing` tells the fields' names ahead,
    /// their types only with the values.
    Event(OnceLock<Box<Shape>>),
    Span {
        start: Site,
        end: Site,
    },
}

/// The fields that hits had, their types, and the call site for such hits.
pub(crate) struct Shape {
    fields: Vec<usize>,
    kinds: Vec<FieldKind>,
    pub site: Site,
    next: OnceLock<Box<Shape>>,
}

fn home(metadata: &Metadata<'_>) -> usize {
    let address = std::ptr::from_ref(metadata) as usize as u64;
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as usize % PLACES
}

/// Where the callsite is, or else may go, in this order.
fn places<'a>(table: &'a [Place], metadata: &Metadata<'_>) -> impl Iterator<Item = &'a Place> {
    let (before, from) = table.split_at(home(metadata));
    from.iter().chain(before)
}

/// The callsite, if it was registered.
#[inline]
pub(crate) fn find(metadata: &Metadata<'_>) -> Option<&'static Callsite> {
    for place in places(CALLSITES.get()?, metadata) {
        let found = place.get()?;
        if std::ptr::eq(found.metadata, metadata) {
            return Some(found);
        }
    }
    None
}

/// The callsite, registered now if it was not yet; `None` if there are too many.
pub(crate) fn register(metadata: &'static Metadata<'static>) -> Option<&'static Callsite> {
    // Nothing is left half done by a panic: the lock only keeps two from making the same callsite.
    let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
    let table = CALLSITES.get_or_init(|| (0..PLACES).map(|_| Place::new()).collect());
    for place in places(table, metadata) {
        let found = place.get_or_init(|| Box::new(Callsite::new(metadata)));
        if std::ptr::eq(found.metadata, metadata) {
            return Some(found);
        }
    }
    None
}

impl Callsite {
    fn new(metadata: &'static Metadata<'static>) -> Callsite {
        let is = if metadata.is_span() {
            let (start, end) = (Kind::IntervalStart, Kind::IntervalEnd);
            Is::Span { start: site(metadata, start, &[]), end: site(metadata, end, &[]) }
        } else {
            Is::Event(OnceLock::new())
        };
        Callsite { metadata, is }
    }

    /// Whether a hit may have to be recorded.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        match &self.is {
            Is::Span { start, .. } => start.is_enabled(),
            // Before the first hit nothing is known of its values.
            Is::Event(first) => match first.get() {
                None => true,
                Some(first) => first.any_enabled(),
            },
        }
    }

    /// Whether a hit can ever be recorded.
    pub fn may_be_enabled(&self) -> bool {
        match &self.is {
            Is::Span { start, end } => start.is_registered() && end.is_registered(),
            Is::Event(first) => first.get().is_none_or(|shape| shape.site.is_registered()),
        }
    }

    /// The call site for values like these.
    pub fn site(&self, hit: &Hit) -> Option<&Site> {
        let Is::Event(first) = &self.is else { return None };
        let kinds = || hit.values.iter().map(|value| value.kind());
        let mut place = first;
        loop {
            let shape = place.get_or_init(|| Box::new(self.shape(hit)));
            if shape.fields == hit.fields && kinds().eq(shape.kinds.iter().copied()) {
                return Some(&shape.site);
            }
            place = &shape.next;
        }
    }

    fn shape(&self, hit: &Hit) -> Shape {
        let declared: Vec<_> = self.metadata.fields().iter().collect();
        let mut names = Vec::new();
        for &index in &hit.fields {
            let name = if index == REST { "rest" } else { declared[index].name() };
            names.push(name::field(name, &names));
        }
        let kinds: Vec<_> = hit.values.iter().map(|value| value.kind()).collect();
        let fields: Vec<_> = names.into_iter().zip(kinds.iter().copied()).collect();
        Shape {
            fields: hit.fields.clone(),
            kinds,
            site: site(self.metadata, Kind::Event, &fields),
            next: OnceLock::new(),
        }
    }
}

impl Shape {
    #[inline]
    fn any_enabled(&self) -> bool {
        let mut shape = Some(self);
        while let Some(this) = shape {
            if this.site.is_enabled() {
                return true;
            }
            shape = this.next.get().map(|next| &**next);
        }
        false
    }
}

fn site(metadata: &Metadata<'_>, kind: Kind, fields: &[(String, FieldKind)]) -> Site {
    let place = Where {
        group: &name::group(metadata),
        name: &name::entity(metadata),
        file: metadata.file().unwrap_or("?"),
        line: metadata.line().unwrap_or(0),
    };
    Site::register(kind, place, fields)
}
