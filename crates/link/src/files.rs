use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files and sockets that this process may have open at a time: raises the soft limit to the hard one,
/// as servers do, and returns what holds then. `u64::MAX` for no limit.
pub fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it is forbidden, what held before holds.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_file_limit();
        assert_eq!(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), raised);
        assert_eq!(raise_file_limit(), raised);
    }
}
