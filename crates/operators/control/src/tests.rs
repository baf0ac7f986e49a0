//! Both sides over real sockets on loopback, with scripted members.

mod authorities;
mod capacities;
mod intruders;
mod losses;
mod orders;
mod sessions;
mod world;
