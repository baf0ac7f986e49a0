//! Tor's directory documents: network-status consensuses, server descriptors, microdescriptors and
//! bandwidth files, and the plain-HTTP requests that fetch them.
//!
//! Every parser takes bytes, allocates little, never panics, and reports the malformed line, the
//! reason, and the remedy. Nothing here verifies a signature: crate `dirmgr` does. Nothing reads a
//! clock either: the time is always an argument, in Unix seconds.
//!
//! One KB is 1,000 bytes everywhere, as in tor.
//!
//! Two features, both on by default, add what touches the outside: `http` the module `fetch`, `store` the functions that write bandwidth
//! files into the folder where tor reads them. Without them the crate does no I/O.
//!
//! ```
//! use flashflow_netdoc::{Consensus, Flag};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bytes = include_bytes!("../tests/data/consensus-ns");
//! let consensus = Consensus::parse(bytes)?;
//! let guards = consensus.routers().iter().filter(|r| r.flags.contains(Flag::Guard)).count();
//! assert_eq!(guards, 3);
//! let relay = consensus.find("Quintex13")?;
//! assert_eq!(relay.fingerprint.to_string(), "0077BCBA7244DB3E6A5ED2746E86170066684887");
//! assert_eq!(relay.bandwidth_kb_s, Some(16100));
//! # Ok(())
//! # }
//! ```

pub mod bwfile;
pub mod consdiff;
pub mod consensus;
pub mod descriptor;
mod family;
#[cfg(feature = "http")]
pub mod fetch;
pub mod input;
pub mod microdesc;
pub mod pieces;
pub mod policy;
pub mod signed;
mod text;
pub mod write;

pub use bwfile::{BandwidthFile, check_as_tor};
pub use consensus::{Consensus, Flag, Flags, Listed, Params, Router};
pub use descriptor::ServerDescriptor;
pub use family::{Family, FamilyMember};
#[cfg(feature = "http")]
pub use fetch::{Fetcher, Resource};
pub use identity::{Ed25519Id, IdError, Nickname, RsaId};
pub use microdesc::Microdesc;
pub use policy::PortPolicy;
