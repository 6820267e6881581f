//! A real S3 API: moto's server on loopback.

use crate::readers::variable;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The bucket that a server starts with.
pub const BUCKET: &str = "lake";
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends with the process that started it, however that ends: then nobody holds its standard input.
const SERVER: &str = "
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from moto.server import main
main()";

/// A server with conditional puts, in a process of its own; ended when it is dropped.
pub struct S3 {
    child: Child,
    port: u16,
}

impl S3 {
    pub fn start() -> Self {
        // Whoever takes the port between our look and the server's start has it: then another is tried.
        for _ in 0..5 {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let child = Command::new(variable("ALLUVIUM_PYTHON"))
                .args(["-c", SERVER, "-H", "127.0.0.1", "-p", &port.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("moto's server starts");
            let mut server = Self { child, port };
            if server.is_up() {
                return server;
            }
        }
        panic!("moto's server did not start on five ports");
    }

    /// Waits for the server, and makes the bucket.
    fn is_up(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok(answer) = self.request("PUT", &format!("/{BUCKET}")) {
                assert!(answer.contains(" 200 "), "{answer}");
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("moto's server did not answer within {PATIENCE:?}");
    }

    fn request(&self, method: &str, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Options of the object store, for the server (or a proxy before it) on this port.
pub fn storage(port: u16) -> Vec<(String, String)> {
    let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    vec![
        option("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{port}")),
        option("AWS_ALLOW_HTTP", "true"),
        option("AWS_REGION", "us-east-1"),
        option("AWS_ACCESS_KEY_ID", "key"),
        option("AWS_SECRET_ACCESS_KEY", "secret"),
    ]
}
