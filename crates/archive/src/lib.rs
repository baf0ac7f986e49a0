//! Tor's archives on one machine: what CollecTor and others publish becomes a columnar dataset (Parquet, by month), over which
//! DataFusion answers SQL and computes the errors of section 3 and appendix A of the FlashFlow paper.
//!
//! `dataset` owns the files, `import` reads sources into them, `engine` queries them. The one thing that SQL cannot express well,
//! a window over irregular times, is `sliding` (pure arithmetic) behind the table `relay_hours`.
//!
//! The crate is empty without its features: `dataset` has the importers, `engine` adds queries, and `cluster` several machines. The query
//! engine takes longer to compile than all the rest of the project.

#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "dataset")]
pub mod dataset;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "dataset")]
mod error;
#[cfg(feature = "engine")]
pub mod errors;
#[cfg(feature = "dataset")]
pub mod import;
#[cfg(feature = "dataset")]
mod observed;
#[cfg(feature = "dataset")]
mod percentile;
#[cfg(feature = "engine")]
pub mod printed;
#[cfg(feature = "engine")]
mod relay_hours;
#[cfg(feature = "engine")]
pub mod relay_page;
#[cfg(feature = "dataset")]
pub mod rows;
#[cfg(feature = "dataset")]
pub mod schedule;
#[cfg(feature = "dataset")]
pub mod sliding;
#[cfg(feature = "dataset")]
pub mod speedtest;
#[cfg(feature = "dataset")]
pub mod staging;
#[cfg(feature = "engine")]
pub mod summary;
#[cfg(feature = "dataset")]
pub mod synth;
#[cfg(feature = "dataset")]
pub mod times;

#[cfg(feature = "dataset")]
pub use error::ArchiveError;
#[cfg(feature = "dataset")]
pub use percentile::percentile;
