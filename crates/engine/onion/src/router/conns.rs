//! All connections of a relay in one table: links, streams, and closed ones with unwritten data.

mod dials;
mod outside;
mod relays;

use super::links::{Link, Output};
use super::streams::Stream;
#[cfg(test)]
use super::table_lookups;
use crate::cell_model::CellModel;
use crate::node::ConnId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use dials::Dials;
use outside::Outside;
use relays::Relays;

/// The state of a connection number.
#[derive(Debug)]
enum Slot<S: CellModel> {
    /// Free or reserved.
    Vacant,
    /// A link and its output.
    Link(Box<Link>),
    /// A closed link whose last cells are being written.
    Closing(Box<Output>),
    /// A stream, or its connection after it ended.
    Stream(Box<Stream<S>>),
}

/// All connections by number. Numbers are reused.
#[derive(Debug)]
pub(super) struct Conns<S: CellModel> {
    slots: Vec<Slot<S>>,
    free: Vec<ConnId>,
    links: usize,
    streams: usize,
    /// The index of links by relay.
    pub(super) relays: Relays,
    /// The memory that the driver and the face hold for connections.
    pub(super) outside: Outside,
}

impl<S: CellModel> Default for Conns<S> {
    fn default() -> Self {
        let (slots, free, relays) = (Vec::new(), Vec::new(), Relays::default());
        let outside = Outside::default();
        Self { slots, free, links: 0, streams: 0, relays, outside }
    }
}

impl<S: CellModel> Conns<S> {
    /// Reserves a free number; [`release`](Self::release) frees it.
    pub(super) fn reserve(&mut self) -> ConnId {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Vacant);
            ConnId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
        })
    }

    /// Frees a number that nothing refers to any longer.
    pub(super) fn release(&mut self, id: ConnId) {
        match core::mem::replace(&mut self.slots[id.0 as usize], Slot::Vacant) {
            Slot::Vacant | Slot::Closing(_) => {}
            Slot::Link(_) => debug_assert!(false, "a link is lost before its number is free"),
            Slot::Stream(_) => debug_assert!(false, "a stream goes before its number is free"),
        }
        debug_assert!(self.free.len() > 1000 || !self.free.contains(&id), "{id:?} is free already");
        self.outside.forget(id);
        self.free.push(id);
    }

    /// All numbers are smaller.
    pub(super) const fn numbers(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn add_link(&mut self, link: Link) -> ConnId {
        let id = self.reserve();
        self.links += 1;
        self.relays.add(id, &link);
        self.slots[id.0 as usize] = Slot::Link(Box::new(link));
        id
    }

    /// The number of links.
    pub(super) const fn link_count(&self) -> usize {
        self.links
    }

    #[inline]
    pub(super) fn link(&self, id: ConnId) -> Option<&Link> {
        #[cfg(test)]
        table_lookups::add(1);
        match self.slots.get(id.0 as usize)? {
            Slot::Link(link) => Some(link),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn link_mut(&mut self, id: ConnId) -> Option<&mut Link> {
        #[cfg(test)]
        table_lookups::add(1);
        match self.slots.get_mut(id.0 as usize)? {
            Slot::Link(link) => Some(link),
            _ => None,
        }
    }

    /// The output of a link, which may be closed already.
    #[inline]
    pub(super) fn output(&self, id: ConnId) -> Option<&Output> {
        #[cfg(test)]
        table_lookups::add(1);
        match self.slots.get(id.0 as usize)? {
            Slot::Link(link) => Some(&link.output),
            Slot::Closing(output) => Some(output),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn output_mut(&mut self, id: ConnId) -> Option<&mut Output> {
        #[cfg(test)]
        table_lookups::add(1);
        match self.slots.get_mut(id.0 as usize)? {
            Slot::Link(link) => Some(&mut link.output),
            Slot::Closing(output) => Some(output),
            _ => None,
        }
    }

    /// Closes a link. Its output and its number remain.
    pub(super) fn remove_link(&mut self, id: ConnId) -> Option<Link> {
        #[cfg(test)]
        table_lookups::add(1);
        let slot = self.slots.get_mut(id.0 as usize)?;
        if !matches!(slot, Slot::Link(_)) {
            return None;
        }
        let Slot::Link(mut link) = core::mem::replace(slot, Slot::Vacant) else { return None };
        *slot = Slot::Closing(Box::new(core::mem::take(&mut link.output)));
        self.links -= 1;
        self.relays.remove(id, &link);
        Some(*link)
    }

    /// All links.
    pub(super) fn links_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Link)> {
        #[cfg(test)]
        table_lookups::add(self.slots.len());
        (0..).zip(&mut self.slots).filter_map(|(number, slot)| match slot {
            Slot::Link(link) => Some((ConnId(number), &mut **link)),
            _ => None,
        })
    }

    /// All links.
    pub(super) fn links(&self) -> impl Iterator<Item = (ConnId, &Link)> {
        #[cfg(test)]
        table_lookups::add(self.slots.len());
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Link(link) => Some((ConnId(number), &**link)),
            _ => None,
        })
    }

    /// Stores a stream under a reserved number.
    pub(super) fn add_stream(&mut self, id: ConnId, stream: Stream<S>) {
        self.streams += 1;
        self.slots[id.0 as usize] = Slot::Stream(Box::new(stream));
    }

    /// The number of streams, and of their connections that are not closed yet.
    pub(super) const fn stream_count(&self) -> usize {
        self.streams
    }

    #[inline]
    pub(super) fn stream(&self, id: ConnId) -> Option<&Stream<S>> {
        #[cfg(test)]
        table_lookups::add(1);
        match self.slots.get(id.0 as usize)? {
            Slot::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn stream_mut(&mut self, id: ConnId) -> Option<&mut Stream<S>> {
        #[cfg(test)]
        table_lookups::add(1);
        match self.slots.get_mut(id.0 as usize)? {
            Slot::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Removes the stream; its number stays reserved.
    pub(super) fn remove_stream(&mut self, id: ConnId) -> Option<Box<Stream<S>>> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        if !matches!(slot, Slot::Stream(_)) {
            return None;
        }
        let Slot::Stream(stream) = core::mem::replace(slot, Slot::Vacant) else { return None };
        self.streams -= 1;
        Some(stream)
    }

    /// All streams.
    pub(super) fn streams(&self) -> impl Iterator<Item = (ConnId, &Stream<S>)> {
        #[cfg(test)]
        table_lookups::add(self.slots.len());
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Stream(stream) => Some((ConnId(number), &**stream)),
            _ => None,
        })
    }

    /// All streams.
    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Stream<S>)> {
        #[cfg(test)]
        table_lookups::add(self.slots.len());
        (0..).zip(&mut self.slots).filter_map(|(number, slot)| match slot {
            Slot::Stream(stream) => Some((ConnId(number), &mut **stream)),
            _ => None,
        })
    }
}
