use super::*;

#[test]
fn paragraphs_become_lines_and_examples_stay_commands() {
    let text = "Examples:\n  flashflow run --once\n  flashflow run --with 'a long value' \\\n      --and another\n\nA sentence that\n\
                goes on.\nIt ends.\n  a table   of its own\n\nExit status: 0\ndone.";
    let expected = "Examples:\n  flashflow run --once\n  flashflow run --with 'a long value' --and another\n\n\
                    A sentence that goes on. It ends.\n  a table   of its own\n\nExit status: 0 done.";
    assert_eq!(reflow(text), expected);
    assert_eq!(reflow(expected), expected);
}

#[test]
fn a_long_example_is_broken_between_arguments() {
    let text = "  flashflow export --store /var/lib/flashflow/bandwidth/store.db --what seconds --out 'a b.csv' > file";
    let expected = "  flashflow export --store /var/lib/flashflow/bandwidth/store.db \\\n      --what seconds --out 'a b.csv' > file";
    assert_eq!(reflow(text), expected);
    // The same for an example that is broken without backslashes.
    let text = "  flashflow export --store /var/lib/flashflow/bandwidth/store.db\n      --what seconds --out 'a b.csv' > file";
    assert_eq!(reflow(text), expected);
}

#[test]
fn the_list_of_commands_fits_a_narrow_terminal() {
    let about = "Measure a relay from this machine, with as many measurers as its processors allow";
    let command = Command::new("flashflow").subcommand(Command::new("measure").about(about));
    let groups: [(&str, &[&str]); 1] = [("Operators", &["measure", "help"])];
    let lines = |width: usize| -> Vec<usize> {
        list(&command, &groups, width).lines().map(|line| line.chars().count()).collect()
    };
    for width in [30, 40, 80] {
        let lengths = lines(width);
        assert!(lengths.iter().all(|length| *length <= width), "{width}: {lengths:?}");
    }
    assert!(lines(40).len() > lines(80).len(), "the width is used");
}
