//! `--check` of the daemons.

use std::fs;
use testbin::team::{make_key, measurer_of, write_measurer};
use testbin::{Running, Scratch};

const RELAY: &str = "8EE1049573B16673000000000000000000001267 198.51.100.7\n";

/// Writes `m.toml` and `c.toml` with all files that they need.
fn write_team(scratch: &Scratch) {
    let (coordinator, measurer) = (make_key(scratch, "c.key"), make_key(scratch, "m.key"));
    write_measurer(scratch, "m", "127.0.0.1:7100", &coordinator);
    let config = format!(
        "key = \"c.key\"\nout = \"bandwidth\"\nauthority = \"127.0.0.1:7001\"\nopt_in = \"list\"\n{}",
        measurer_of("127.0.0.1:7100", &measurer)
    );
    fs::write(scratch.path("c.toml"), config).expect("written");
    fs::write(scratch.path("list"), RELAY).expect("written");
}

#[test]
fn a_check_of_a_coordinator_reads_all_files_and_writes_none() {
    let scratch = Scratch::new();
    write_team(&scratch);
    let check = ["coordinator", "--config", "c.toml", "--check"];
    let ended = scratch.run(&check);
    ended.assert_code(0);
    let printed = ended.out.join("\n");
    for part in ["is valid", "1 measurer, 200.00 Mbit/s", "1 on the opt-in list", "slots of 33 s"] {
        assert!(printed.contains(part), "no {part}: {printed}");
    }
    let value = scratch.run(&[&check[..], &["--json"]].concat()).summary();
    assert_eq!((&value["type"], &value["opted_in"]), (&"check".into(), &1.into()));
    assert!(!scratch.path("bandwidth").exists(), "it makes neither store nor seed");

    fs::create_dir(scratch.path("bandwidth")).expect("made");
    for (file, content, parts) in [
        ("list", "not a fingerprint\n", ["line 1", "list"]),
        (
            "list",
            &format!("${},198.51.100.7\n", "A".repeat(40)),
            ["a blank", "without `$` and commas"],
        ),
        ("bandwidth/schedule.seed", "12", ["schedule.seed", "seed"]),
        ("bandwidth/store.db", "no database", ["store.db", "store.db"]),
        ("c.key", "no key", ["c.key", "c.key"]),
    ] {
        let path = scratch.path(file);
        let before = fs::read(&path).ok();
        fs::write(&path, content).expect("written");
        let ended = scratch.run(&check);
        ended.assert_refused(&parts);
        assert_eq!(ended.code, Some(1), "{file}");
        match before {
            Some(before) => fs::write(&path, before).expect("written"),
            None => fs::remove_file(&path).expect("removed"),
        }
    }
    scratch.run(&check).assert_code(0);
}

#[test]
fn a_check_of_a_measurer_reads_key_and_list_and_verifies_addresses() {
    let scratch = Scratch::new();
    write_team(&scratch);
    let check = ["measurer", "--config", "m.toml", "--check"];
    let config = fs::read_to_string(scratch.path("m.toml")).expect("written");
    let with = |more: &str| {
        fs::write(scratch.path("m.toml"), format!("{config}{more}\n")).expect("written");
        scratch.run(&check)
    };
    let ended = with("opt_in = \"list\"\nlanding_ports = \"20000-20999\"");
    ended.assert_code(0);
    let printed = ended.out.join("\n");
    for part in ["is valid", "200.00 Mbit/s", "opt-in list: 1", "20000-20999"] {
        assert!(printed.contains(part), "no {part}: {printed}");
    }
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let signed = with(&format!("opt_in_key = \"{key}\""));
    assert!(signed.out.join("\n").contains(&format!("signed by {key}")), "{:?}", signed.out);
    for (more, part) in [
        ("opt_in = \"absent\"", "absent"),
        ("own_address = \"198.51.100.7\"", "is it an address of this machine?"),
        ("landing_ports = \"5-4\"", "20000-20999"),
    ] {
        let ended = with(more);
        ended.assert_refused(&[part]);
        assert_eq!(ended.code, Some(1), "{more}");
    }
}

#[test]
fn a_check_warns_of_valid_settings_that_limit_or_prevent_measurements() {
    let scratch = Scratch::new();
    write_team(&scratch);
    let config = fs::read_to_string(scratch.path("m.toml")).expect("written");
    let warnings = |config: &str, descriptors: u32| {
        fs::write(scratch.path("m.toml"), config).expect("written");
        let check = ["measurer", "--config", "m.toml", "--check", "--json"];
        let ended = Running::new(scratch.command_with_descriptors(descriptors, &check)).end();
        ended.assert_code(0);
        let warnings = ended.summary()["warnings"].clone();
        warnings.as_array().expect("a list").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let ports = |range: &str| format!("{config}landing_ports = \"{range}\"\n");
    assert_eq!(warnings(&ports("20000-20999"), 4096), Vec::<String>::new());
    let few = warnings(&ports("20000-20009"), 4096);
    assert!(
        matches!(&few[..], [one] if one.contains("10 ports") && one.contains("320")),
        "{few:?}"
    );
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("Linux");
    let ephemeral = range.split_whitespace().collect::<Vec<_>>().join("-");
    let found = warnings(&ports(&ephemeral), 4096);
    assert!(matches!(&found[..], [one] if one.contains("ip_local_port_range")), "{found:?}");
    let found = warnings(&config, 600);
    assert!(matches!(&found[..], [one] if one.contains("LimitNOFILE=65536")), "{found:?}");
    let own = make_key(&scratch, "own.key");
    write_measurer(&scratch, "own", "127.0.0.1:0", &own);
    let own = fs::read_to_string(scratch.path("own.toml")).expect("written");
    let found = warnings(&own, 4096);
    assert!(matches!(&found[..], [one] if one.contains("the key of this measurer")), "{found:?}");
    let ended = scratch.run(&["measurer", "--config", "m.toml", "--check"]);
    assert!(ended.out.iter().any(|line| line.starts_with("warning: coordinators:")), "{ended:?}");

    let public = scratch.run(&["keys", "--show", "c.key"]).out.remove(0);
    let config = fs::read_to_string(scratch.path("c.toml")).expect("written");
    let (head, _) = config.split_once("[[measurers]]").expect("one");
    let config = format!("{head}{}", measurer_of("127.0.0.1:7100", &public));
    fs::write(scratch.path("c.toml"), config).expect("written");
    let ended = scratch.run(&["coordinator", "--config", "c.toml", "--check"]);
    ended.assert_code(0);
    assert!(ended.out.iter().any(|line| line.contains("the key of this coordinator")), "{ended:?}");
}

#[test]
fn a_check_of_a_relay_reads_its_keys_and_makes_none() {
    let scratch = Scratch::new();
    let relay = ["relay", "--nickname", "mine", "--address", "127.0.0.1", "--keys", "keys"];
    let check = [&relay[..], &["--or-port", "9001", "--check"]].concat();
    let ended = scratch.run(&check);
    ended.assert_code(0);
    let printed = ended.out.join("\n");
    assert!(
        printed.contains("mine at 127.0.0.1:9001") && printed.contains("a new one"),
        "{printed}"
    );
    assert!(!scratch.path("keys").exists());
    let mut running = scratch.start(&relay);
    running.wait_for_out("listening", |line| line.starts_with("listening on "));
    let listening = running.out()[0].clone();
    let ended = scratch.run(&check);
    ended.assert_code(0);
    let fingerprint = listening.split(' ').skip_while(|word| *word != "fingerprint").nth(1);
    let identity = format!("identity: {}", fingerprint.expect("in the line"));
    assert!(ended.out.contains(&identity), "{listening}: {:?}", ended.out);
    drop(running);
    fs::write(scratch.path("keys/secret_id_key"), "damaged").expect("written");
    let ended = scratch.run(&check);
    ended.assert_refused(&["secret_id_key", "damaged"]);
    assert_eq!(ended.code, Some(1));
    scratch.run(&["relay", "--nickname", "mine", "--check"]).assert_code(2);
}
