//! Processes that an experiment may have left, from the kernel's list.

use std::fs;
use std::path::Path;
use std::process;

/// The processes that are children of this one, or have this folder among their arguments: each with its arguments.
pub(super) fn processes(folder: &Path) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = process::id();
    let folder = folder.to_string_lossy();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_child = fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| parent(&stat) == Some(own));
        (pid != own && (is_child || line.contains(&*folder))).then_some((pid, line))
    });
    found.collect()
}

/// The parent of a process, from its `/proc/…/stat`.
fn parent(stat: &str) -> Option<u32> {
    // The program's name, in parentheses, may contain blanks and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_read_after_a_name_with_parentheses() {
        assert_eq!(parent("12 (a (b) c) S 7 12 12 0"), Some(7));
    }

    #[test]
    fn a_child_is_found_until_it_has_been_reaped() {
        let mut child = process::Command::new("sleep").arg("60").spawn().expect("a program");
        let pid = child.id();
        let nowhere = Path::new("/nowhere/at/all");
        let is_there = || processes(nowhere).iter().any(|(found, _)| *found == pid);
        assert!(is_there());
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(!is_there());
    }
}
