//! A browser loads a page with fifty images through `flashflow-lab client` and C tor relays.

use lab::{Network, NetworkSpec, RelaySpec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use testbin::chromium::Browser;
use testbin::{Scratch, number, text};

/// Number of objects of the page.
const OBJECTS: u16 = 50;
/// Pixels per row of an image: a multiple of four, so that rows need no padding.
const WIDTH: u16 = 64;

/// An image of noise, in which missing or foreign data are visible.
struct Image {
    /// The file.
    file: Vec<u8>,
    /// SHA-256 of the expected pixels: red, green, blue and opacity, row by row.
    shown: String,
}

impl Image {
    /// Makes an image of 1.6 to 148 kB.
    fn new(number: u16) -> Self {
        let height = 8 + number * 15;
        let mut pixels = vec![0; usize::from(WIDTH) * usize::from(height) * 3];
        StdRng::seed_from_u64(number.into()).fill_bytes(&mut pixels);
        // A bitmap: file header, information header with a negative height (the first row is the upper one), and blue, green, red.
        let (width, down) = (u32::from(WIDTH), -i32::from(height));
        let head = 54_u32;
        let len = u32::try_from(pixels.len()).expect("small");
        let mut file = b"BM".to_vec();
        [head + len, 0, head, 40, width].iter().for_each(|field| file.extend(field.to_le_bytes()));
        file.extend(down.to_le_bytes());
        [1_u16, 24].iter().for_each(|field| file.extend(field.to_le_bytes()));
        [0, len, 0, 0, 0, 0].iter().for_each(|field: &u32| file.extend(field.to_le_bytes()));
        file.extend(&pixels);
        let mut hash = Sha256::new();
        pixels.chunks(3).for_each(|pixel| hash.update([pixel[2], pixel[1], pixel[0], 255]));
        Self { file, shown: hex::encode(hash.finalize()) }
    }
}

/// The page and its images.
fn serve(mut stream: TcpStream, images: &[Image], served: &AtomicUsize) -> io::Result<()> {
    let mut requests = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if requests.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut header = String::new();
        while requests.read_line(&mut header)? > 2 {
            header.clear();
        }
        let path = line.split(' ').nth(1).unwrap_or_default();
        let image = path
            .strip_prefix("/image/")
            .and_then(|number| images.get(number.parse::<usize>().ok()?));
        let (status, kind, body) = match (path, image) {
            ("/", _) => ("200 OK", "text/html", page()),
            (_, Some(image)) => {
                served.fetch_add(1, Ordering::Relaxed);
                ("200 OK", "image/bmp", image.file.clone())
            }
            // For instance the icon.
            _ => ("404 Not Found", "text/plain", Vec::new()),
        };
        let len = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\r\n"
        )?;
        stream.write_all(&body)?;
    }
}

fn page() -> Vec<u8> {
    let mut page = "<!doctype html><title>Fifty images</title>".to_owned();
    for number in 0..OBJECTS {
        write!(page, "<img src=\"/image/{number}\" alt=\"{number}\">").expect("memory");
    }
    page.into_bytes()
}

/// The SHA-256 of each displayed image.
const SHOWN: &str = "(async () => {
    const all = [];
    for (const image of document.images) {
        await image.decode();
        const [width, height] = [image.naturalWidth, image.naturalHeight];
        const canvas = new OffscreenCanvas(width, height).getContext('2d');
        canvas.drawImage(image, 0, 0);
        const pixels = canvas.getImageData(0, 0, width, height).data;
        const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', pixels));
        all.push([...hash].map(it => it.toString(16).padStart(2, '0')).join(''));
    }
    return all;
})()";

fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

#[test]
fn a_browser_shows_a_page_of_fifty_objects_through_the_client() {
    let images: Arc<Vec<Image>> = Arc::new((0..OBJECTS).map(Image::new).collect());
    let [served, accepted] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let server = listener.local_addr().expect("bound");
    let (objects, count) = (Arc::clone(&images), Arc::clone(&served));
    let connections = Arc::clone(&accepted);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            connections.fetch_add(1, Ordering::Relaxed);
            let (objects, count) = (Arc::clone(&objects), Arc::clone(&count));
            // The browser may close the connection.
            thread::spawn(move || serve(stream, &objects, &count));
        }
    });

    // Only to this port: the browser's other requests go nowhere.
    let policy = format!("accept *:{}, reject *:*", server.port());
    let exit = |nickname: &str| RelaySpec::new(nickname).exiting_to(&policy);
    let scratch = Scratch::new();
    let spec = NetworkSpec::new(vec![exit("exita"), exit("exitb")]);
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let folder = network.dir().to_str().expect("text");
    let arguments = ["client", "--network", folder, "--socks", "127.0.0.1:0", "--json"];
    let mut client = scratch.start(&[&arguments[..], &["--show-destinations"]].concat());
    client.wait_for_out("address", |line| value(line)["type"] == "socks");
    client.wait_for_out("circuit", |line| value(line)["type"] == "circuit_built");
    let socks = client.out().iter().map(|line| value(line)).find(|event| event["type"] == "socks");
    let proxy = format!("--proxy-server=socks5://{}", text(&socks.expect("printed"), "address"));
    // By default, Chromium bypasses the proxy for this machine.
    let mut browser = match Browser::start_with(&[&proxy, "--proxy-bypass-list=<-loopback>"]) {
        Ok(browser) => browser,
        Err(lacking) => skip::this_test!("{lacking}"),
    };
    browser.open(&format!("http://{server}/"));
    let shown = browser.evaluate(SHOWN);
    let expected: Vec<&str> = images.iter().map(|image| image.shown.as_str()).collect();
    assert_eq!(shown, Value::from(expected));
    drop(browser);
    let is_over = |line: &str| {
        value(line)["type"] == "stream_closed" && value(line)["target"] == server.to_string()
    };
    client.wait_for_outs("the ends of all connections", accepted.load(Ordering::Relaxed), is_over);
    client.signal(Signal::TERM);
    let ended = client.end();
    ended.assert_code(0);
    let values = ended.values();
    let target = server.to_string();
    let over =
        values.iter().filter(|value| value["type"] == "stream_closed" && value["target"] == target);
    let received_bytes: f64 = over.map(|event| number(event, "received_bytes")).sum();
    let files: usize = images.iter().map(|image| image.file.len()).sum();
    assert_eq!(served.load(Ordering::Relaxed), usize::from(OBJECTS), "each was requested once");
    assert!(received_bytes >= files as f64, "received through it: {received_bytes} of {files}");
}
