//! Both sides over real sockets on loopback, with members that do as the test says.

mod authorities;
mod capacities;
mod intruders;
mod losses;
mod orders;
mod sessions;
mod world;
