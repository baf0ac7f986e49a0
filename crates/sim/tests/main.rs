//! Virtual time: cell models, limits and figures.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod ages;
mod cell_models;
mod figures;
mod hop_windows;
mod limits;
mod shutdown;
