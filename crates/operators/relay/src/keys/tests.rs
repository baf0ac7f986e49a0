use super::*;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::OnceLock;

fn keys() -> &'static LongTermKeys {
    static KEYS: OnceLock<LongTermKeys> = OnceLock::new();
    KEYS.get_or_init(|| LongTermKeys::generate(&mut StdRng::from_seed([3; 32])).expect("keys"))
}

fn open_at(folder: &Path, seed: u8) -> Result<LongTermKeys, KeyError> {
    open(folder, &mut StdRng::from_seed([seed; 32]))
}

/// The public identities of keys.
fn publics(keys: &LongTermKeys) -> (Vec<u8>, [u8; 32], [u8; 32]) {
    (keys.rsa.public_der().to_vec(), keys.ed25519.id().0, keys.onion_secret)
}

fn refusal(folder: &Path) -> String {
    match open_at(folder, 9) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn keys_are_generated_once_and_then_read() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("relay/keys");
    let made = open_at(&folder, 1).expect("made");
    let found = open_at(&folder, 2).expect("found");
    assert_eq!(publics(&made), publics(&found));
    let message = b"either signs like the other";
    assert_eq!(
        made.ed25519.sign(message),
        found.ed25519.sign(message),
        "expanded keys sign deterministically"
    );
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for name in [RSA, ED25519, ED25519_PUBLIC, ONION] {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 4, "no temporary files");

    let others = open_at(&parent.path().join("others"), 2).expect("made");
    assert_ne!(publics(&made), publics(&others));
}

#[test]
fn a_lost_onion_key_is_replaced_and_a_lost_identity_is_not() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path();
    let made = open_at(folder, 1).expect("made");
    fs::remove_file(folder.join(ONION)).expect("removed");
    let found = open_at(folder, 2).expect("found");
    assert_eq!(made.ed25519.public(), found.ed25519.public());
    assert_ne!(made.onion_secret, found.onion_secret);
    assert_eq!(open_at(folder, 3).expect("found").onion_secret, found.onion_secret);

    for (lost, left) in [(RSA, ED25519), (ED25519, RSA)] {
        let aside = folder.join("aside");
        fs::rename(folder.join(lost), &aside).expect("moved");
        let refused = refusal(folder);
        assert!(refused.contains(&format!("`{lost}` next to it does not exist")), "{refused}");
        assert!(refused.contains(left) && !folder.join(lost).exists(), "{refused}");
        fs::rename(&aside, folder.join(lost)).expect("moved back");
    }
    open_at(folder, 4).expect("whole again");
}

type Damage = fn(&mut Vec<u8>);

#[test]
fn corrupt_keys_are_reported_and_not_changed() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path();
    open_at(folder, 1).expect("made");
    let cases: [(&str, Damage, &str); 9] = [
        (RSA, |file| file.truncate(400), "does not end"),
        (RSA, Vec::clear, "does not begin"),
        (RSA, |file| file[100] = b'!', "not base64"),
        (RSA, |file| file[200] = if file[200] == b'A' { b'B' } else { b'A' }, "damaged"),
        (ED25519, |file| file.truncate(95), "length of a key"),
        (ED25519, |file| file[40] ^= 1, "another one"),
        (ED25519, |file| file[3] = b'x', "does not begin"),
        (ONION, |file| file[40] ^= 1, "does not belong"),
        (ONION, |file| file.truncate(31), "too short"),
    ];
    for (name, damage, expected) in cases {
        let path = folder.join(name);
        let whole = fs::read(&path).expect("there");
        let mut damaged = whole.clone();
        damage(&mut damaged);
        fs::write(&path, &damaged).expect("written");
        let refused = refusal(folder);
        assert!(refused.contains(name) && refused.contains(expected), "{name}: {refused}");
        assert_eq!(fs::read(&path).expect("there"), damaged);
        fs::write(&path, &whole).expect("written");
    }
    open_at(folder, 2).expect("whole again");
}

#[test]
fn readable_secrets_and_unusable_folders_are_refused() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("keys");
    open_at(&folder, 1).expect("made");
    let path = folder.join(ONION);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("opened");
    let refused = refusal(&folder);
    assert!(refused.contains("mode 640") && refused.contains("chmod 600"), "{refused}");

    let file = parent.path().join("file");
    fs::write(&file, "").expect("written");
    let refused = refusal(&file);
    assert!(refused.contains("cannot create the folder of keys"), "{refused}");
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("closed");
    let refused = refusal(&folder);
    assert!(refused.contains("cannot read the key"), "{refused}");
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes: Vec<u8>, at in 0..900_usize, with: u8) {
        let rsa = format::rsa(&keys().rsa).expect("encoded").as_bytes().to_vec();
        let [ed25519, onion] = [format::ed25519(&keys().ed25519), format::onion(&keys().onion_secret)];
        let files = [rsa, ed25519.to_vec(), onion.to_vec()];
        for mut file in files.into_iter().chain([bytes]) {
            if let Some(byte) = file.get_mut(at) {
                *byte = with;
            }
            let _ = format::read_rsa(&file);
            let _ = format::read_ed25519(&file);
            let _ = format::read_ed25519_public(&file);
            let _ = format::read_onion(&file);
        }
    }

    #[test]
    fn onion_keys_survive_a_round_trip(secret: [u8; 32]) {
        prop_assert_eq!(format::read_onion(&format::onion(&secret)), Ok(secret));
    }
}

#[test]
fn rotation_keeps_the_previous_onion_key_until_it_is_removed() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path();
    let mut keys = open_at(folder, 1).expect("made");
    assert_eq!(keys.previous_onion_secret, None);
    let first = keys.onion_secret;
    let made = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let file = fs::File::options().write(true).open(folder.join(ONION)).expect("there");
    file.set_modified(made).expect("set");
    assert_eq!(onion_key_made(folder).expect("there"), 1_700_000_000);

    rotate_onion_key(folder, &mut keys, &mut StdRng::from_seed([7; 32])).expect("written");
    assert_ne!(keys.onion_secret, first);
    assert_eq!(keys.previous_onion_secret, Some(first));
    assert!(onion_key_made(folder).expect("there") > 1_700_000_000);
    let found = open_at(folder, 2).expect("found");
    assert_eq!((found.onion_secret, found.previous_onion_secret), (keys.onion_secret, Some(first)));

    forget_old_onion_key(folder, &mut keys).expect("removed");
    forget_old_onion_key(folder, &mut keys).expect("nothing to remove");
    assert_eq!(keys.previous_onion_secret, None);
    assert_eq!(open_at(folder, 3).expect("found").previous_onion_secret, None);

    // A rotation that was interrupted halfway.
    fs::copy(folder.join(ONION), folder.join(OLD_ONION)).expect("copied");
    assert_eq!(open_at(folder, 4).expect("found").previous_onion_secret, None);
}

#[test]
fn permissions_of_the_folder_are_restricted_and_another_users_folder_is_refused() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("keys");
    fs::create_dir(&folder).expect("made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("opened");
    let mut rng = StdRng::from_seed([1; 32]);
    open(&folder, &mut rng).expect("keys");
    let mode = fs::metadata(&folder).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);

    // A folder of root; if the test runs as root, one of another user.
    let foreign = match rustix::process::geteuid().is_root() {
        true => {
            std::os::unix::fs::chown(&folder, Some(12_345), None).expect("changed");
            folder
        }
        false => PathBuf::from("/usr"),
    };
    let problem = open(&foreign, &mut rng).err().expect("refused").to_string();
    assert!(problem.contains("belongs to user ID") && problem.contains("chown"), "{problem}");
}
