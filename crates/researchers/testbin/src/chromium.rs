//! Headless Chromium, controlled by the DevTools protocol over pipes, without a driver and a port.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A browser with one page.
pub struct Browser {
    process: Child,
    to: File,
    from: BufReader<File>,
    next: u64,
    session: Option<String>,
    _folder: TempDir,
}

impl Browser {
    /// Starts the browser.
    ///
    /// # Errors
    /// Why there is no browser on this machine.
    pub fn start() -> Result<Self, String> {
        Self::start_with(&[])
    }

    /// Starts the browser with additional arguments.
    ///
    /// # Errors
    /// Why there is no browser on this machine.
    pub fn start_with(arguments: &[&str]) -> Result<Self, String> {
        let version = Command::new("chromium").arg("--version").output();
        version.map_err(|error| format!("the program `chromium`: {error}"))?;
        let folder = tempfile::tempdir().expect("a folder");
        let pipes = ["to", "from"].map(|name| folder.path().join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().expect("started").success());
        // Chromium reads from file descriptor 3 and writes to 4.
        let script = "to=$0 from=$1 profile=$2; shift 2; exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --disable-background-networking --disable-component-update --disable-sync --no-pings \
                      --remote-debugging-pipe --user-data-dir=\"$profile\" \"$@\" about:blank 3<\"$to\" 4>\"$from\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).args(&pipes).arg(folder.path().join("profile"));
        command.args(arguments);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.expect("started");
        let to = File::options().write(true).open(&pipes[0]).expect("its end");
        let from = BufReader::new(File::open(&pipes[1]).expect("its end"));
        let mut browser = Self { process, to, from, next: 0, session: None, _folder: folder };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        assert!(browser.session.is_some(), "no page: {session}");
        browser.call("Page.enable", json!({}));
        Ok(browser)
    }

    /// Sets the size of the window, and whether it is that of a phone.
    pub fn resize(&mut self, width_px: u32, height_px: u32, is_phone: bool) {
        let size = json!({"width": width_px, "height": height_px, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets whether the reader prefers dark pages.
    pub fn prefer_dark(&mut self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.wait_for(&format!(
            "location.href === {} && document.readyState === 'complete'",
            json!(url)
        ));
    }

    /// The value of a script.
    pub fn evaluate(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let said = self.call("Runtime.evaluate", asked);
        assert!(said["exceptionDetails"].is_null(), "{script}: {said}");
        said["result"]["value"].clone()
    }

    /// Waits until the value of a script is true. Between two pages there may be no page that can run it.
    pub fn wait_for(&mut self, script: &str) {
        for _ in 0..600 {
            let asked = json!({"expression": script, "returnByValue": true});
            if self
                .try_call("Runtime.evaluate", asked)
                .is_some_and(|said| said["result"]["value"] == true)
            {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        let text = self.evaluate("document.body.innerText");
        panic!("timeout: {script} in {text}");
    }

    /// Presses and releases a key.
    pub fn press(&mut self, key: &str, code: u32, text: &str) {
        let down =
            json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Types into the focused element.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Saves a screenshot as PNG.
    pub fn save_picture(&mut self, path: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let data = picture["data"].as_str().expect("a picture");
        let decoded =
            Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut decoded = decoded.expect("started");
        let mut input = decoded.stdin.take().expect("piped");
        let data = data.to_owned();
        let writing = std::thread::spawn(move || input.write_all(data.as_bytes()));
        let output = decoded.wait_with_output().expect("ended");
        writing.join().expect("no panic").expect("taken");
        std::fs::write(path, output.stdout).expect("room");
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let said = self.try_call(method, params.clone());
        said.unwrap_or_else(|| panic!("{method} {params} was refused"))
    }

    /// `None` if it was refused.
    fn try_call(&mut self, method: &str, params: Value) -> Option<Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("it reads");
        loop {
            let mut bytes = Vec::new();
            let count = self.from.read_until(0, &mut bytes).expect("it writes");
            assert!(count > 0, "the browser has ended");
            bytes.pop();
            let said: Value = serde_json::from_slice(&bytes).expect("JSON");
            if said["id"] == id {
                return said["error"].is_null().then(|| said["result"].clone());
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        // On this request Chromium ends its child processes, too.
        let ended = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        if ended.is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
