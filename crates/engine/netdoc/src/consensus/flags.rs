//! The flags of relays, as a set of bits.

use std::fmt;

/// Declares the flags once, so that names, bits and the list stay consistent.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A flag that authorities give to relays (dir-spec.txt, section 3.4.1, `s`).
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Flag { $($(#[$doc])* $name,)* }

        impl Flag {
            /// All flags known here, in alphabetical order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The flag's name in documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The flag with this name, if it is known here.
            #[must_use]
            pub fn from_name(name: &[u8]) -> Option<Self> {
                $(if name == stringify!($name).as_bytes() { return Some(Self::$name); })*
                None
            }
        }
    };
}

flags! {
    /// It is a directory authority.
    Authority,
    /// It must not be used as an exit.
    BadExit,
    /// It is useful as an exit.
    Exit,
    /// It is fast enough for circuits that need bandwidth.
    Fast,
    /// It is suitable as an entry guard.
    Guard,
    /// It is an onion-service directory.
    HSDir,
    /// It must be used as a middle relay only.
    MiddleOnly,
    /// Authorities don't agree on its Ed25519 identity.
    NoEdConsensus,
    /// Authorities could reach it.
    Running,
    /// It stays up for long.
    Stable,
    /// It should upload a new descriptor.
    StaleDesc,
    /// It is one of too many relays at its address.
    Sybil,
    /// It serves directory documents.
    V2Dir,
    /// It is allowed in the network.
    Valid,
}

/// A set of [`Flag`]s.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct Flags(u16);

impl Flags {
    /// Whether the flag is in the set.
    #[must_use]
    pub const fn contains(self, flag: Flag) -> bool {
        self.0 & (1 << flag as u16) != 0
    }

    /// Adds the flag.
    pub const fn insert(&mut self, flag: Flag) {
        self.0 |= 1 << flag as u16;
    }

    /// The flags in the set, in alphabetical order.
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL.iter().copied().filter(move |flag| self.contains(*flag))
    }
}

impl FromIterator<Flag> for Flags {
    fn from_iter<I: IntoIterator<Item = Flag>>(flags: I) -> Self {
        let mut set = Self::default();
        flags.into_iter().for_each(|flag| set.insert(flag));
        set
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, flag) in self.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " " })?;
            f.write_str(flag.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
