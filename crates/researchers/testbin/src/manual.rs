//! The commands of the documentation: those in fenced blocks of its pages, and the examples of `--help`.

use clap::Command;
use clap::error::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block of a page.
#[derive(Debug)]
pub struct Block {
    /// The page, relative to the root of the repository, such as `docs/lab.md`.
    pub page: String,
    /// The number of its first line.
    pub line: usize,
    /// The language after the fence, such as `sh`.
    pub language: String,
    /// Its lines.
    pub text: String,
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.canonicalize().expect("the repository")
}

/// The fenced blocks of the README, of CONTRIBUTING and of all pages under `docs`, in order.
#[must_use]
pub fn blocks() -> Vec<Block> {
    let root = root();
    let mut paths = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    collect(&root.join("docs"), &mut paths);
    let mut blocks: Vec<Block> = Vec::new();
    for path in paths {
        let page = path.strip_prefix(&root).expect("below").to_str().expect("text").to_owned();
        let text = fs::read_to_string(&path).expect("a page");
        let mut is_open = false;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                is_open = !is_open;
                if is_open {
                    let language = language.to_owned();
                    let (page, line, text) = (page.clone(), number + 1, String::new());
                    blocks.push(Block { page, line, language, text });
                }
            } else if is_open && let Some(block) = blocks.last_mut() {
                block.text += line;
                block.text.push('\n');
            }
        }
    }
    blocks
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("listed").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
}

impl Block {
    /// Its commands, without comments and with continued lines joined, each with the number of its line. In a `console` block, commands
    /// follow `$ `.
    #[must_use]
    pub fn commands(&self) -> Vec<(usize, String)> {
        let mut commands: Vec<(usize, String)> = Vec::new();
        let mut is_continued = false;
        for (number, line) in (self.line..).zip(self.text.lines()) {
            let line = match self.language.as_str() {
                "sh" => line,
                "console" => match line.strip_prefix("$ ") {
                    Some(command) => command,
                    None => continue,
                },
                _ => return Vec::new(),
            };
            let line = without_comment(line).trim_end();
            let (part, continues) = match line.strip_suffix('\\') {
                Some(part) => (part.trim_end(), true),
                None => (line, false),
            };
            match commands.last_mut() {
                Some((_, command)) if is_continued => {
                    command.push(' ');
                    command.push_str(part.trim_start());
                }
                _ if part.is_empty() => {}
                _ => commands.push((number, part.to_owned())),
            }
            // A quotation may span lines.
            let is_quoted = commands
                .last()
                .is_some_and(|(_, command)| !command.matches('"').count().is_multiple_of(2));
            is_continued = continues || is_quoted;
        }
        commands
    }
}

/// The line up to a `#` that begins a word outside of quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (None, '#') if before.is_whitespace() => return &line[..at],
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
        before = letter;
    }
    line
}

/// The simple commands of a line of a shell, each as its words, without redirections.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut is_target = false;
    let mut letters = line.chars().peekable();
    let end = |word: &mut Option<String>, is_target: &mut bool, commands: &mut Vec<Vec<String>>| {
        if let Some(word) = word.take()
            && !std::mem::take(is_target)
            && let Some(command) = commands.last_mut()
        {
            command.push(word);
        }
    };
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                word.extend(letters.by_ref().take_while(|inner| *inner != letter));
            }
            '$' if letters.peek() == Some(&'(') => {
                let word = word.get_or_insert_default();
                word.push('$');
                for inner in letters.by_ref() {
                    word.push(inner);
                    if inner == ')' {
                        break;
                    }
                }
            }
            ' ' | '\t' => end(&mut word, &mut is_target, &mut commands),
            '>' | '<' => {
                // A number before it is a file descriptor.
                word = word.filter(|text| !text.bytes().all(|byte| byte.is_ascii_digit()));
                end(&mut word, &mut is_target, &mut commands);
                while letters.next_if(|next| matches!(next, '>' | '<' | '&')).is_some() {}
                is_target = true;
            }
            '|' | '&' | ';' | '(' | ')' => {
                end(&mut word, &mut is_target, &mut commands);
                commands.push(Vec::new());
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    end(&mut word, &mut is_target, &mut commands);
    commands.retain(|command| !command.is_empty());
    commands
}

/// Words of the documentation that stand for a value of the reader's, with such a value.
const PLACEHOLDERS: [(&str, &str); 5] = [
    ("PORT", "7001"),
    ("PUBLIC-KEY", KEY),
    ("d75a…511a", KEY),
    ("0f1e…", KEY),
    ("FINGERPRINT", "8EE1049573B166736DA32BD3F9BB1C1DAB4ECB53"),
];
const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// The command lines of this program in a line of a shell, with its name as their first word.
fn of_program(program: &str, line: &str) -> Vec<Vec<String>> {
    let own = |words: Vec<String>| {
        let is_own = |word: &String| word.rsplit('/').next() == Some(program);
        // `cargo build -p flashflow` names a package.
        let at =
            words.iter().position(is_own).filter(|_| !words.iter().any(|word| word == "cargo"))?;
        let filled = words.into_iter().skip(at).map(|word| {
            let fill = |word: String, (name, value): &(&str, &str)| word.replace(name, value);
            PLACEHOLDERS.iter().fold(word, fill)
        });
        Some(filled.collect())
    };
    simple_commands(line).into_iter().filter_map(own).collect()
}

/// Asserts that the program parses each of its command lines in the documentation and in the examples of its help, at least `least` of
/// them.
pub fn assert_commands_parse(program: &Command, least: usize) {
    let name = program.get_name();
    let mut lines: Vec<(String, String)> = Vec::new();
    for block in blocks() {
        let commands = block.commands().into_iter();
        lines.extend(commands.map(|(line, text)| (format!("{}:{line}", block.page), text)));
    }
    examples(program, &mut lines);
    let (mut count, mut problems) = (0, Vec::new());
    for (place, line) in &lines {
        for words in of_program(name, line) {
            count += 1;
            if let Err(error) = program.clone().try_get_matches_from(&words)
                && !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
            {
                problems.push(format!("{place}: {line}\n{error}"));
            }
        }
    }
    assert!(problems.is_empty(), "{} of {count}:\n{}", problems.len(), problems.join("\n"));
    assert!(count >= least, "{count} commands");
}

/// The examples in the help of a command and of all below it.
fn examples(command: &Command, lines: &mut Vec<(String, String)>) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let text = help.replace("\\\n", "");
    let place = format!("--help of {}", command.get_name());
    let lines_of_help = text.lines().filter(|line| line.starts_with("  "));
    lines
        .extend(lines_of_help.map(|line| (place.clone(), without_comment(line.trim()).to_owned())));
    command.get_subcommands().for_each(|below| examples(below, lines));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_shell_is_split_into_simple_commands() {
        let line = r#"A=1 sudo b/flashflow x 'a  b' "c;d" $(date +%F) 2>err >out && flashflow-lab y | grep -c 'z #'"#;
        let found = of_program("flashflow", line);
        assert_eq!(found, [["b/flashflow", "x", "a  b", "c;d", "$(date +%F)"]]);
        assert_eq!(of_program("flashflow-lab", line), [["flashflow-lab", "y"]]);
        assert_eq!(
            of_program("flashflow", "A=1 cargo test -p flashflow"),
            Vec::<Vec<String>>::new()
        );
        assert_eq!(without_comment("a '#b' c#d # e"), "a '#b' c#d ");
    }

    #[test]
    fn continued_lines_are_joined_and_output_is_no_command() {
        let block = |language: &str, text: &str| Block {
            page: String::new(),
            line: 3,
            language: language.to_owned(),
            text: text.to_owned(),
        };
        let commands = block("sh", "# why\na \\\n    b   # c\n\nd\n").commands();
        assert_eq!(commands, [(4, "a b".to_owned()), (7, "d".to_owned())]);
        assert_eq!(block("console", "$ a\nb\n").commands(), [(3, "a".to_owned())]);
        assert_eq!(block("toml", "a = 1\n").commands(), []);
    }
}
