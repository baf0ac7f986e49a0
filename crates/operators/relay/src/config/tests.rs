use super::values::default_held_bytes_max;
use super::*;
use proptest::prelude::*;

/// A public key (RFC 8032, §7.1, test 1).
pub(crate) const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

const SAMPLE: &str = include_str!("../../../../../docs/relay.toml");
const LEAST: &str = "nickname = \"a\"\naddress = \"127.0.0.1\"\nkeys = \"k\"\n";

fn settings(text: &str) -> Result<Settings, ConfigError> {
    RelayConfig::parse(text, "test").and_then(RelayConfig::check)
}

fn refusal(text: &str) -> String {
    settings(text).expect_err("must be refused").to_string()
}

/// The sample with all commented settings enabled.
fn whole_sample() -> String {
    let uncommented = SAMPLE.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line));
    uncommented.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_file_is_valid_and_has_every_setting() {
    settings(SAMPLE).expect("sound");
    settings(&whole_sample()).expect("sound");
    let whole = RelayConfig::parse(&whole_sample(), "sample").expect("TOML");
    // A new setting must be added here; the test then fails until the sample has it.
    let RelayConfig {
        nickname,
        address,
        or_port,
        listen,
        keys,
        rate_mbit_per_s,
        burst_mbit,
        scheduler,
        scheduler_interval_ms,
        hop_windows,
        threads,
        contact,
        my_family,
        family_ids,
        authorities,
        public_network,
        assume_reachable,
        authority_identities,
        directory,
        cache,
        allow_private_addresses,
        shutdown_wait_s,
        max_mem_in_queues_mib,
        metrics,
        public_metrics,
        link_observations_every_s,
        exit,
        flashflow,
    } = whole;
    let ExitSection { policy, reject_private, ipv6, name_servers, conflux } = exit;
    let FlashFlowConfig {
        measurements_allowed,
        allowed_coordinators,
        measurement_period_s,
        measurements_per_period,
        background_traffic_percent,
        max_measurement_duration_s,
    } = flashflow;
    let is_there = [
        ("nickname", nickname.is_some()),
        ("address", address.is_some()),
        ("or_port", or_port.is_some()),
        ("listen", listen.is_some()),
        ("keys", keys.is_some()),
        ("rate_mbit_per_s", rate_mbit_per_s.is_some()),
        ("burst_mbit", burst_mbit.is_some()),
        ("scheduler", scheduler.is_some()),
        ("scheduler_interval_ms", scheduler_interval_ms.is_some()),
        ("hop_windows", hop_windows.is_some()),
        ("threads", threads.is_some()),
        ("contact", contact.is_some()),
        ("my_family", my_family.is_some()),
        ("family_ids", family_ids.is_some()),
        ("authorities", authorities.is_some()),
        ("public_network", public_network.is_some()),
        ("metrics", metrics.is_some()),
        ("public_metrics", public_metrics.is_some()),
        ("link_observations_every_s", link_observations_every_s.is_some()),
        ("assume_reachable", assume_reachable.is_some()),
        ("authority_identities", authority_identities.is_some()),
        ("directory", directory.is_some()),
        ("cache", cache.is_some()),
        ("allow_private_addresses", allow_private_addresses.is_some()),
        ("shutdown_wait_s", shutdown_wait_s.is_some()),
        ("max_mem_in_queues_mib", max_mem_in_queues_mib.is_some()),
        ("policy", policy.is_some()),
        ("reject_private", reject_private.is_some()),
        ("ipv6", ipv6.is_some()),
        ("name_servers", name_servers.is_some()),
        ("conflux", conflux.is_some()),
        ("measurements_allowed", measurements_allowed.is_some()),
        ("allowed_coordinators", allowed_coordinators.is_some()),
        ("measurement_period_s", measurement_period_s.is_some()),
        ("measurements_per_period", measurements_per_period.is_some()),
        ("background_traffic_percent", background_traffic_percent.is_some()),
        ("max_measurement_duration_s", max_measurement_duration_s.is_some()),
    ];
    for (key, is_there) in is_there {
        assert!(is_there, "docs/relay.toml lacks {key}");
    }
    // The commented values are the defaults.
    let shown = FlashFlowConfig {
        measurements_allowed,
        allowed_coordinators: None,
        measurement_period_s,
        measurements_per_period,
        background_traffic_percent,
        max_measurement_duration_s,
    };
    let resolve = |config| crate::target_params(config, &|_| None);
    assert_eq!(resolve(&shown), resolve(&FlashFlowConfig::default()));
}

#[test]
fn unset_settings_have_defaults() {
    let settings = settings(LEAST).expect("sound");
    assert_eq!(settings.listen, "127.0.0.1:0".parse().expect("an address"));
    assert_eq!((settings.limit, settings.contact), (None, None));
    assert_eq!((settings.authorities, settings.flashflow), (vec![], FlashFlowConfig::default()));
    assert_eq!(settings.cache, settings.keys.join("cache"));
    assert!(settings.serves_directory && settings.authority_identities.is_empty());
    assert_eq!(settings.exit, None);
    assert_eq!(settings.shutdown_wait, Duration::from_secs(30));
    assert!(
        (240 << 20..=8 << 30).contains(&settings.held_bytes_max),
        "{}",
        settings.held_bytes_max
    );
    let announced = announced(None);
    assert_eq!((announced.rate.as_byte_per_s(), announced.burst_bytes), (1 << 30, 1 << 30));
}

#[test]
fn schedulers_are_chosen_by_name() {
    let scheduler = |text: &str| settings(&format!("{LEAST}{text}")).expect("sound").scheduler;
    let (usual, other) = (SchedulerConfig::INTERVAL, Duration::from_millis(5));
    assert_eq!(scheduler(""), SchedulerConfig::kist(usual));
    let fixed = SchedulerConfig { is_interval_fixed: true, ..SchedulerConfig::kist(other) };
    assert_eq!(scheduler("scheduler_interval_ms = 5"), fixed);
    assert_eq!(scheduler("scheduler = \"kist-lite\""), SchedulerConfig::kist_lite(usual));
    assert_eq!(scheduler("scheduler = \"vanilla\""), SchedulerConfig::vanilla());
}

#[test]
fn hop_by_hop_windows_are_off_unless_chosen_by_name() {
    let windows = |text: &str| settings(&format!("{LEAST}{text}")).expect("sound").hop_windows;
    assert_eq!((windows(""), windows("hop_windows = \"off\"")), (None, None));
    for (name, expected) in HopWindows::NAMED {
        assert_eq!(windows(&format!("hop_windows = \"{name}\"")), Some(expected));
    }
    let refused = refusal(&format!("{LEAST}hop_windows = \"on\""));
    assert!(refused.contains("`hop_windows`: \"on\" is not one of off, backtap, "), "{refused}");
}

#[test]
fn rates_have_the_units_of_their_names() {
    let limit = |text: &str| settings(&format!("{LEAST}{text}")).expect("sound").limit;
    let rate = Rate::from_mbit_per_s(10.0);
    assert_eq!(limit("rate_mbit_per_s = 10"), Some(RateLimit { rate, burst_bytes: 1_250_000 }));
    let both = "rate_mbit_per_s = 10.0\nburst_mbit = 20.0";
    assert_eq!(limit(both), Some(RateLimit { rate, burst_bytes: 2_500_000 }));
}

#[test]
fn names_of_the_proposal_are_accepted() {
    let text = format!(
        "{LEAST}[flashflow]\nFFMeasurementsAllowed = true\nFFAllowedCoordinators = [\"{KEY}\"]\n\
         FFMeasurementPeriod = 7200\nFFBackgroundTrafficPercent = 10\nFFMaxMeasurementDuration = 60"
    );
    let params = crate::target_params(&settings(&text).expect("sound").flashflow, &|_| None);
    assert!(params.is_allowed);
    assert_eq!(params.coordinators, [coordinator_key(KEY).expect("a key")]);
    assert_eq!((params.period.as_secs(), params.max_duration.as_secs()), (7_200, 60));
    assert_eq!(params.client_share.as_permille(), 100);
    let twice =
        format!("{LEAST}[flashflow]\nFFMeasurementPeriod = 7200\nmeasurement_period_s = 7200");
    assert!(refusal(&twice).contains("duplicate"), "{}", refusal(&twice));
}

#[test]
fn invalid_settings_are_refused_with_key_and_reason() {
    let cases = [
        ("", "`nickname` is missing; set it in the file, or give --nickname"),
        ("nickname = \"a\"", "`address` is missing"),
        ("nickname = \"a\"\naddress = \"127.0.0.1\"", "`keys` is missing"),
        ("nickname = \"a b\"", "isn't a nickname"),
        ("nickname = \"a\"\nnonsense = 1", "line 2"),
        ("nickname = \"a\"\nnonsense = 1", "unknown field `nonsense`"),
        ("nickname = ", "line 1"),
        ("address = \"::1\"", "invalid IPv4 address"),
        ("address = \"127.0.0.1\"\nor_port = 65536", "65536"),
        ("authorities = [\"localhost:1\"]", "socket address"),
        ("[flashflow]\nallowed_coordinators = [\"12\"]", "expected 64 hex digits"),
        ("[flashflow]\nFFNonsense = 1", "unknown field `FFNonsense`"),
        ("[flashflow]\nmeasurements_allowed = 1", "boolean"),
    ];
    for (text, expected) in cases {
        assert!(refusal(text).contains(expected), "{text}: {}", refusal(text));
    }
    let cases = [
        ("rate_mbit_per_s = 0.1", "slower than"),
        ("rate_mbit_per_s = -1.0", "not an amount"),
        ("rate_mbit_per_s = nan", "not an amount"),
        ("rate_mbit_per_s = inf", "not an amount"),
        ("burst_mbit = 10", "there is no rate_mbit_per_s"),
        ("rate_mbit_per_s = 10\nburst_mbit = 9.9", "less than the rate"),
        ("rate_mbit_per_s = 10\nburst_mbit = 0", "not an amount"),
        ("threads = 0", "a number from 1 to 64"),
        ("threads = 65", "a number from 1 to 64"),
        ("scheduler_interval_ms = 101", "101 is not from 1 to 100"),
        ("shutdown_wait_s = 86401", "86401 is not from 0 to 86400"),
        ("max_mem_in_queues_mib = 63", "63 is less than 64"),
        ("scheduler = \"fifo\"", "expected one of `kist`, `kist-lite`, `vanilla`"),
        ("contact = \"a\\nb\"", "one line"),
        ("contact = \" a\"", "one line"),
        ("contact = \"\"", "1 to 1000"),
        ("[flashflow]\nFFMaxMeasurementDuration = 121", "121 is not from 10 to 120"),
    ];
    for (text, expected) in cases {
        let text = format!("{LEAST}{text}");
        assert!(refusal(&text).contains(expected), "{text}: {}", refusal(&text));
    }
    let anywhere = LEAST.replace("127.0.0.1", "0.0.0.0");
    assert!(refusal(&anywhere).contains("nobody can reach"), "{}", refusal(&anywhere));
    // One digit off the key above.
    let wrong = coordinator_key(&KEY.replacen("d75a98", "d75a99", 1));
    assert!(wrong.expect_err("no point of the curve").contains("wrong?"));
}

#[test]
fn invalid_coordinator_keys_are_refused() {
    for bad in ["", &KEY[2..], &format!("{KEY}00")] {
        assert!(coordinator_key(bad).is_err_and(|why| why.contains("no public key")), "{bad}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    type Change = fn(&mut FlashFlowConfig, u32);
    let cases: [(&str, u32, u32, Change); 3] = [
        ("measurement_period_s", 3_600, 2_629_728, |c, v| c.measurement_period_s = Some(v)),
        ("background_traffic_percent", 0, 99, |c, v| c.background_traffic_percent = Some(v)),
        ("max_measurement_duration_s", 10, 120, |c, v| c.max_measurement_duration_s = Some(v)),
    ];
    for (key, least, most, change) in cases {
        let mut config = FlashFlowConfig::default();
        for good in [least, most] {
            change(&mut config, good);
            config.check().expect("within");
        }
        for bad in [least.wrapping_sub(1), most + 1, u32::MAX] {
            change(&mut config, bad);
            let refused = config.check().expect_err("out of range").to_string();
            assert!(refused.contains(key) && refused.contains(&bad.to_string()), "{refused}");
        }
    }
}

#[test]
fn flags_override_a_file_whose_paths_are_relative_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("relay.toml");
    fs::write(&path, whole_sample()).expect("written");
    let file = RelayConfig::read(&path).expect("read");
    assert_eq!(file.keys, Some(folder.path().join("keys")));
    assert_eq!(file.clone().overridden_by(RelayConfig::default()), file);
    assert_eq!(RelayConfig::default().overridden_by(file.clone()), file);

    let flashflow =
        FlashFlowConfig { background_traffic_percent: Some(7), ..FlashFlowConfig::default() };
    let keys = Some(PathBuf::from("elsewhere"));
    let flags = RelayConfig { or_port: Some(0), keys, flashflow, ..RelayConfig::default() };
    let merged = file.overridden_by(flags).check().expect("sound");
    assert_eq!((merged.listen.port(), merged.keys), (0, PathBuf::from("elsewhere")));
    assert_eq!(merged.nickname.as_str(), "example");
    assert_eq!(merged.flashflow.background_traffic_percent, Some(7));
    assert_eq!(merged.flashflow.max_measurement_duration_s, Some(45));

    let missing = RelayConfig::read(&folder.path().join("none")).expect_err("no file").to_string();
    assert!(missing.contains("none"), "{missing}");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\PC|\n|nickname = |\\[flashflow\\]|[0-9\"=.])*") {
        let _ = settings(&text);
    }
}

#[test]
fn an_exit_follows_its_rules_and_refuses_private_addresses() {
    let exit = |text: &str| settings(&format!("{LEAST}[exit]\n{text}")).expect("sound").exit;
    assert_eq!(exit("policy = [\"reject *:25\"]"), None, "it accepts nothing");
    let exit = exit("policy = [\"reject *:25\", \"accept *:*\"]").expect("it accepts much");
    assert!(exit.rejects_private && !exit.ipv6 && exit.name_servers.is_empty());
    let policy =
        exit.engine(&[[203, 0, 113, 1].into(), "2001:db8::1".parse().expect("one")]).policy;
    let allows = |to: &str| policy.allows(to.parse().expect("an address"));
    assert!(allows("203.0.113.2:80") && !allows("203.0.113.2:25"));
    assert!(!allows("10.0.0.1:80") && !allows("127.0.0.1:80") && !allows("203.0.113.1:80"));
    assert!(allows("[2001:db8::2]:80") && !allows("[2001:db8::1]:80"));
    let open = ExitSettings { rejects_private: false, ipv6: true, ..exit };
    assert!(open.engine(&[[127, 0, 0, 1].into()]).policy.allows(([127, 0, 0, 1], 80).into()));
    assert!(refusal(&format!("{LEAST}[exit]\npolicy = [\"accept\"]")).contains("exit.policy"));
    let no_port = format!("{LEAST}[exit]\nname_servers = [\"192.0.2.1:0\"]");
    assert!(refusal(&no_port).contains("exit.name_servers"));
}

#[test]
fn extending_to_private_addresses_is_allowed_by_default_only_at_a_private_address() {
    let allows = |text: &str| settings(text).expect("sound").allows_private_addresses;
    let public = LEAST.replace("127.0.0.1", "203.0.113.1");
    assert!(allows(LEAST) && !allows(&public));
    assert!(allows(&format!("{public}allow_private_addresses = true")));
    assert!(!allows(&format!("{LEAST}allow_private_addresses = false")));
}

#[test]
fn the_memory_limit_follows_the_rule_of_c_tor() {
    let gib = |count: u64| count << 30;
    for (total, expected) in [
        (gib(24), gib(8)),
        (gib(10), gib(4)),
        (gib(4), gib(3)),
        (gib(1) / 4, gib(1) / 4),
        (gib(1000), gib(8)),
        (0, gib(1) / 4),
    ] {
        assert_eq!(default_held_bytes_max(total), expected, "of {total}");
    }
    let settings = settings(&format!("{LEAST}\nmax_mem_in_queues_mib = 512")).expect("sound");
    assert_eq!(settings.held_bytes_max, 480 << 20, "without what the account does not see");
}

#[test]
fn the_public_network_requires_an_explicit_setting_and_a_public_address() {
    let at = |address: &str, more: &str| {
        settings(&format!("nickname = \"a\"\naddress = \"{address}\"\nkeys = \"k\"\n{more}"))
    };
    assert!(at("198.51.100.7", "").expect("sound").authorities.is_empty());
    let public = at("198.51.100.7", "public_network = true\n");
    let refusal = |found: Result<Settings, ConfigError>| found.expect_err("refused").to_string();
    if is_private(Ipv4Addr::new(198, 51, 100, 7).into()) {
        // An address of documentation may be none of the public network.
        assert!(refusal(public).contains("public_network"));
    } else {
        let public = public.expect("sound");
        assert_eq!((public.authorities.len(), public.authority_identities.len()), (9, 9));
    }
    assert!(refusal(at("10.0.0.7", "public_network = true\n")).contains("10.0.0.7"));
    let own = "public_network = true\nauthorities = [\"198.51.100.1:80\"]\n";
    assert!(refusal(at("198.51.100.7", own)).contains("leave out `authorities`"));
}

#[test]
fn links_of_the_public_network_are_never_observed() {
    let (authorities, _) = dirmgr::public::authorities();
    let with = |authority: &str| {
        settings(&format!(
            "nickname = \"a\"\naddress = \"10.0.0.7\"\nkeys = \"k\"\nlink_observations_every_s = 3600\n\
             authorities = [\"10.0.0.1:80\", \"{authority}\"]\n"
        ))
    };
    assert!(with("10.0.0.2:80").is_ok());
    let refusal = with(&authorities[3].to_string()).expect_err("refused").to_string();
    assert!(refusal.contains("link_observations_every_s"), "{refusal}");
}

#[test]
fn metrics_on_public_addresses_require_an_explicit_setting() {
    let at =
        |metrics: &str, more: &str| settings(&format!("{LEAST}metrics = \"{metrics}\"\n{more}"));
    for own in [
        "127.0.0.1:9035",
        "127.8.9.10:9035",
        "[::1]:9035",
        "10.0.0.7:9035",
        "172.31.0.1:9035",
        "192.168.1.1:9035",
        "169.254.0.1:9035",
        "[fd00::1]:9035",
        "[fe80::1]:9035",
        "[::ffff:127.0.0.1]:9035",
    ] {
        assert_eq!(at(own, "").expect("sound").metrics, own.parse().ok());
    }
    for exposed in [
        "0.0.0.0:9035",
        "[::]:9035",
        "[::ffff:0.0.0.0]:9035",
        "8.8.8.8:9035",
        "0.1.2.3:9035",
        "100.64.0.1:9035",
        "198.18.0.1:9035",
        "224.0.0.1:9035",
        "255.255.255.255:9035",
        "[2001:db8::1]:9035",
        "[2002:7f00:1::1]:9035",
        "[64:ff9b::7f00:1]:9035",
        "[::7f00:1]:9035",
        "[::ffff:8.8.8.8]:9035",
    ] {
        for forbidden in ["", "public_metrics = false\n"] {
            let refusal = at(exposed, forbidden).expect_err("refused").to_string();
            assert!(refusal.contains("`metrics`"), "{refusal}");
            assert!(refusal.contains("--public-metrics"), "{refusal}");
        }
        let allowed = at(exposed, "public_metrics = true\n").expect("the operator's word");
        assert_eq!(allowed.metrics, exposed.parse().ok());
    }
    // As a flag over a file.
    let flag =
        |metrics: &str| RelayConfig { metrics: metrics.parse().ok(), ..RelayConfig::default() };
    let file = RelayConfig::parse(LEAST, "test").expect("TOML");
    assert!(file.clone().overridden_by(flag("0.0.0.0:1")).check().is_err());
    assert!(file.overridden_by(flag("127.0.0.1:1")).check().is_ok());
    assert!(at("nowhere", "").expect_err("refused").to_string().contains("metrics"));
}
