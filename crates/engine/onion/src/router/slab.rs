#[cfg(test)]
use super::table_lookups;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::marker::PhantomData;

/// An index of one entry of a [`Slab`].
pub(super) trait Key: Copy + Debug {
    fn from_number(number: u32) -> Self;
    fn number(self) -> u32;
}

/// Makes a newtype a [`Key`].
macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u32);

        impl $crate::router::slab::Key for $name {
            fn from_number(number: u32) -> Self {
                Self(number)
            }

            fn number(self) -> u32 {
                self.0
            }
        }
    };
}
pub(super) use key;

/// Entries by index. Indexes are reused.
#[derive(Debug)]
pub(super) struct Slab<K, T> {
    entries: Vec<Option<T>>,
    free: Vec<K>,
    keys: PhantomData<K>,
}

impl<K, T> Default for Slab<K, T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), keys: PhantomData }
    }
}

impl<K: Key, T> Slab<K, T> {
    pub(super) fn add(&mut self, entry: T) -> K {
        let key = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            K::from_number(u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX))
        });
        self.entries[key.number() as usize] = Some(entry);
        key
    }

    #[inline]
    pub(super) fn get(&self, key: K) -> Option<&T> {
        #[cfg(test)]
        table_lookups::add(1);
        self.entries.get(key.number() as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        #[cfg(test)]
        table_lookups::add(1);
        self.entries.get_mut(key.number() as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, key: K) -> Option<T> {
        let entry = self.entries.get_mut(key.number() as usize)?.take()?;
        self.free.push(key);
        Some(entry)
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        #[cfg(test)]
        table_lookups::add(self.entries.len());
        let all = (0..).zip(&self.entries);
        all.filter_map(|(number, entry)| Some((K::from_number(number), entry.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        #[cfg(test)]
        table_lookups::add(self.entries.len());
        self.entries.iter_mut().flatten()
    }

    /// All indexes are smaller.
    pub(super) const fn numbers(&self) -> usize {
        self.entries.len()
    }
}
