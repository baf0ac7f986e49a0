//! Rewrites the corpus's initial files: `cargo run -p fuzz --example seed`, from the repository's root.

use std::path::Path;

fn main() -> std::io::Result<()> {
    for (target, name, content) in fuzz::seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}
