//! Tor's archives on one machine: what CollecTor and others publish becomes a columnar dataset (Parquet, by month), over which
//! DataFusion answers SQL and computes the errors of section 3 and appendix A of the FlashFlow paper.
//!
//! `dataset` owns the files, also those in object storage; `import` reads sources into them, `engine` queries them. The one thing that SQL
//! cannot express well, a window over irregular times, is `sliding` (pure arithmetic) behind the table `relay_hours`.
//!
//! The query engine takes longer to compile than all the rest of the project, so neither of the other programs depends on this crate.

pub mod cluster;
pub mod co_location;
pub mod convert;
pub mod dataset;
pub mod engine;
mod error;
pub mod errors;
pub mod import;
mod observed;
mod percentile;
pub mod printed;
mod relay_hours;
pub mod relay_page;
pub mod rows;
pub mod schedule;
pub mod sliding;
pub mod speedtest;
pub mod staging;
pub mod summary;
pub mod synth;
pub mod times;

pub use error::ArchiveError;
pub use percentile::percentile;
