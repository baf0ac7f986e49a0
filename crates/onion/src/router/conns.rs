//! All connections of a relay in one table: links, streams, and what is left of both.

mod dials;
mod outside;
mod relays;

use super::links::{Link, Output};
#[cfg(test)]
use super::looks;
use super::streams::Stream;
use crate::cell_model::CellModel;
use crate::node::ConnId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use dials::Dials;
use outside::Outside;
use relays::Relays;

/// What is behind a connection's number.
#[derive(Debug)]
enum Slot<S: CellModel> {
    /// Nothing, or nothing yet.
    Vacant,
    /// A link, with what waits to be written on it.
    Link(Box<Link>),
    /// A link that is lost to us, while its last words are written.
    Closing(Box<Output>),
    /// A stream, or its connection after its end.
    Stream(Box<Stream<S>>),
}

/// All connections by number. The number of one that is gone is used again.
#[derive(Debug)]
pub(super) struct Conns<S: CellModel> {
    slots: Vec<Slot<S>>,
    free: Vec<ConnId>,
    links: usize,
    streams: usize,
    /// Which links lead to which relays.
    pub(super) relays: Relays,
    /// What others hold of them.
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
    /// A number that nobody has; [`release`](Self::release) gives it back.
    pub(super) fn reserve(&mut self) -> ConnId {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Vacant);
            ConnId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
        })
    }

    /// Nobody names the connection any more.
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

    /// All numbers are below.
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

    /// How many links there are.
    pub(super) const fn link_count(&self) -> usize {
        self.links
    }

    #[inline]
    pub(super) fn link(&self, id: ConnId) -> Option<&Link> {
        #[cfg(test)]
        looks::note(1);
        match self.slots.get(id.0 as usize)? {
            Slot::Link(link) => Some(link),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn link_mut(&mut self, id: ConnId) -> Option<&mut Link> {
        #[cfg(test)]
        looks::note(1);
        match self.slots.get_mut(id.0 as usize)? {
            Slot::Link(link) => Some(link),
            _ => None,
        }
    }

    /// What waits on a link, which may be lost already.
    #[inline]
    pub(super) fn output(&self, id: ConnId) -> Option<&Output> {
        #[cfg(test)]
        looks::note(1);
        match self.slots.get(id.0 as usize)? {
            Slot::Link(link) => Some(&link.output),
            Slot::Closing(output) => Some(output),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn output_mut(&mut self, id: ConnId) -> Option<&mut Output> {
        #[cfg(test)]
        looks::note(1);
        match self.slots.get_mut(id.0 as usize)? {
            Slot::Link(link) => Some(&mut link.output),
            Slot::Closing(output) => Some(output),
            _ => None,
        }
    }

    /// The link is no more. What waits on it stays, and so does its number.
    pub(super) fn remove_link(&mut self, id: ConnId) -> Option<Link> {
        #[cfg(test)]
        looks::note(1);
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
        looks::note(self.slots.len());
        (0..).zip(&mut self.slots).filter_map(|(number, slot)| match slot {
            Slot::Link(link) => Some((ConnId(number), &mut **link)),
            _ => None,
        })
    }

    /// All links.
    pub(super) fn links(&self) -> impl Iterator<Item = (ConnId, &Link)> {
        #[cfg(test)]
        looks::note(self.slots.len());
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Link(link) => Some((ConnId(number), &**link)),
            _ => None,
        })
    }

    /// A number that was reserved gets its stream.
    pub(super) fn add_stream(&mut self, id: ConnId, stream: Stream<S>) {
        self.streams += 1;
        self.slots[id.0 as usize] = Slot::Stream(Box::new(stream));
    }

    /// How many streams there are, and connections of theirs that are still to be emptied or closed.
    pub(super) const fn stream_count(&self) -> usize {
        self.streams
    }

    #[inline]
    pub(super) fn stream(&self, id: ConnId) -> Option<&Stream<S>> {
        #[cfg(test)]
        looks::note(1);
        match self.slots.get(id.0 as usize)? {
            Slot::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn stream_mut(&mut self, id: ConnId) -> Option<&mut Stream<S>> {
        #[cfg(test)]
        looks::note(1);
        match self.slots.get_mut(id.0 as usize)? {
            Slot::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// The stream is gone; its number is not free yet.
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
        looks::note(self.slots.len());
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Stream(stream) => Some((ConnId(number), &**stream)),
            _ => None,
        })
    }

    /// All streams.
    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Stream<S>)> {
        #[cfg(test)]
        looks::note(self.slots.len());
        (0..).zip(&mut self.slots).filter_map(|(number, slot)| match slot {
            Slot::Stream(stream) => Some((ConnId(number), &mut **stream)),
            _ => None,
        })
    }
}
