//! A proxy before a store's server, for what servers and networks do on bad days.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is done, and then this status is told.
    LandsThen(u16),
    /// It is done, and the answer never comes.
    LandsThenHangs,
    /// It is not done; this status is told.
    Answers(u16),
    /// The connection breaks in the middle of its body.
    Resets,
    /// It is done after a while.
    Slow(Duration),
    /// The store ignores that the object should not exist.
    IgnoresCondition,
}

/// A request, as a rule sees it.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Of a POST; that of a removal names the objects.
    pub body: String,
}

impl Request {
    pub fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.path.contains(part)
    }
}

type Rule = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

#[derive(Default)]
struct Shared {
    rule: Mutex<Option<Rule>>,
    seen: Mutex<Vec<Request>>,
    ended: AtomicBool,
}

/// Passes requests on to a server on loopback, unless a rule has a fault for them.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let proxy = Self { port, shared: shared.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    break;
                }
                let (Ok(stream), shared) = (stream, shared.clone()) else { continue };
                // Whatever goes wrong here is a broken connection to the client.
                std::thread::spawn(move || drop(serve(&stream, upstream, &shared)));
            }
        });
        proxy
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Each request is asked of `rule`; `None` lets it pass.
    pub fn set_rule(&self, rule: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Some(Box::new(rule));
    }

    pub fn clear(&self) {
        *self.shared.rule.lock().unwrap() = None;
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.shared.seen.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

/// One request a connection: the answer closes it.
fn serve(client: &TcpStream, upstream: u16, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(client);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some((_, value)) = line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.parse().unwrap_or(0);
        }
        head.push(line);
    }
    let mut words = head[0].split(' ');
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut request = Request { method, path, body: String::new() };
    // A removal's body is part of what it is; of an upload, the middle must still be to come.
    let mut body = vec![0; if request.method == "POST" { length } else { 0 }];
    reader.read_exact(&mut body)?;
    request.body = String::from_utf8_lossy(&body).into_owned();
    shared.seen.lock().unwrap().push(request.clone());
    let fault = shared.rule.lock().unwrap().as_mut().and_then(|rule| rule(&request));
    if fault == Some(Fault::Resets) {
        let mut half = vec![0; (length - body.len()) / 2];
        reader.read_exact(&mut half)?;
        // What is unread when the socket closes makes it a reset.
        return Ok(());
    }
    let mut rest = vec![0; length - body.len()];
    reader.read_exact(&mut rest)?;
    body.extend(rest);
    match fault {
        Some(Fault::Answers(status)) => return answer(client, status),
        Some(Fault::Slow(wait)) => std::thread::sleep(wait),
        _ => {}
    }
    let kept = |line: &&String| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        name != "connection" && !(name == "if-none-match" && fault == Some(Fault::IgnoresCondition))
    };
    let head: Vec<&str> = head.iter().filter(kept).map(String::as_str).collect();
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream))?;
    server.write_all(format!("{}\r\nConnection: close\r\n\r\n", head.join("\r\n")).as_bytes())?;
    server.write_all(&body)?;
    let mut answered = Vec::new();
    server.read_to_end(&mut answered)?;
    match fault {
        Some(Fault::LandsThen(status)) => answer(client, status),
        Some(Fault::LandsThenHangs) => {
            std::thread::sleep(Duration::from_secs(30));
            Ok(())
        }
        _ => (&*client).write_all(&answered),
    }
}

fn answer(mut client: &TcpStream, status: u16) -> std::io::Result<()> {
    let code = match status {
        403 => "AccessDenied",
        429 | 503 => "SlowDown",
        _ => "InternalError",
    };
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>on purpose</Message></Error>");
    let head = format!(
        "HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}
