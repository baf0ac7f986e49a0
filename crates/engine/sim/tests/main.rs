//! Virtual time: cell models, limits and figures.
//!
//! One program, since linking takes long. `scripts/lanes` lists the lane of each file.

mod ages;
mod cell_models;
mod figures;
mod hop_windows;
mod limits;
mod shutdown;
