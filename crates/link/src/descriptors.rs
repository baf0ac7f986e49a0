use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many file descriptors as the system allows it, and says how many that is.
/// Many programs' default, 1024, would be the most connections of a relay.
pub fn raise_descriptor_limit() -> u32 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX)
}
