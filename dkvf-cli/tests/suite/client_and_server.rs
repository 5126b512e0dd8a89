//! `dkvf server` and `dkvf client`: a cluster of two processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::{assert_status, dkvf, fields, json, path, run, text};

/// Configurations for two replicas, `a` and `b`, and a client.
struct Files {
    folder: tempfile::TempDir,
    /// By server: server, control and client port.
    ports: [[u16; 3]; 2],
}

impl Files {
    fn new() -> Self {
        let ports = || [(); 3].map(|()| free_port());
        let files = Files {
            folder: tempfile::tempdir().unwrap(),
            ports: [ports(), ports()],
        };
        for (replica, name) in ["a", "b"].iter().enumerate() {
            let [server, control, client] = files.ports[replica];
            let own = format!(
                "<replica>{replica}</replica><bind>127.0.0.1</bind>\
                 <client_port>{client}</client_port><server_port>{server}</server_port><control_port>{control}</control_port>"
            );
            files.write(name, name, &own);
        }
        files.write(
            "client",
            "me",
            "<role>client</role><request_timeout_ms>1000</request_timeout_ms>",
        );
        files
    }

    fn write(&self, file: &str, id: &str, own: &str) {
        let servers = ["a", "b"].iter().zip(self.ports).enumerate().map(|(replica, (name, [server, control, client]))| {
            format!(r#"<server id="{name}" ip="127.0.0.1" port="{server}" control_port="{control}" client_port="{client}" replica="{replica}" partition="0"/>"#)
        });
        let servers: String = servers.collect();
        let text = format!(
            "<config><id>{id}</id><protocol>eventual</protocol>{own}<connect_to>{servers}</connect_to></config>"
        );
        std::fs::write(self.file(file), text).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.xml"))
    }

    /// Runs `dkvf client` with these words.
    fn client(&self, words: &[&str]) -> Output {
        let file = self.file("client");
        run(["client", "--config", path(&file)]
            .into_iter()
            .chain(words.iter().copied()))
    }
}

/// A port for a server that may be down for a while: not one of those that the system gives to whoever asks for any.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + (std::process::id() % 500) as u16 * 40;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running server; it stops when dropped, by the end of its input.
struct Server {
    process: Child,
    input: Option<ChildStdin>,
}

impl Server {
    /// Starts one and waits for its word that it serves.
    fn start(config: &Path) -> Self {
        let mut command = dkvf();
        command
            .args(["server", "--stop-with-stdin", "--config"])
            .arg(config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        if !line.contains(" runs eventual: clients on 127.0.0.1:") {
            let mut words = String::new();
            process
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut words)
                .unwrap();
            panic!("the server says {line:?} and then {words:?}");
        }
        Server {
            input: process.stdin.take(),
            process,
        }
    }

    fn exit_code(mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

#[test]
fn what_one_client_writes_another_reads_at_the_other_replica() {
    let files = Files::new();
    let servers = ["a", "b"].map(|name| Server::start(&files.file(name)));
    assert_status(
        &files.client(&["--replica", "0", "put", "greeting", "two words"]),
        0,
    );
    let output = files.client(&["--replica", "0", "get", "greeting"]);
    assert_status(&output, 0);
    assert_eq!(text(&output.stdout), "two words\n");
    // Replication takes a moment.
    while files.client(&["--replica", "1", "get", "greeting"]).stdout != b"two words\n" {}

    let output = files.client(&["get", "nothing"]);
    assert_status(&output, 1);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        (String::new(), "no such key\n".to_owned())
    );

    let output = files.client(&["--replica", "2", "get", "greeting"]);
    assert_status(&output, 2);
    assert!(text(&output.stderr).contains("no replica 2"));

    let output = files.client(&["status", "--json", "-"]);
    assert_status(&output, 0);
    let status = json(&output.stdout);
    assert_eq!(fields(&status), ["servers"]);
    let names: Vec<_> = status["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| {
            (
                server["server"].as_str().unwrap(),
                server["running"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(names, [("a", true), ("b", true)]);

    let [a, b] = servers;
    shut_down(files.ports[0][1]);
    assert_eq!(a.exit_code(), Some(0));
    let output = files.client(&["status"]);
    assert_status(&output, 1);
    assert!(
        text(&output.stdout).contains("\na: cannot connect to 127.0.0.1:"),
        "{}",
        text(&output.stdout)
    );
    drop(b);
}

/// `POST /shutdown` on a control port.
fn shut_down(port: u16) {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_script_of_commands_is_one_session() {
    let files = Files::new();
    let _servers = ["a", "b"].map(|name| Server::start(&files.file(name)));
    let mut command = assert_cmd::Command::from_std(dkvf());
    command
        .args(["client", "--config", path(&files.file("client")), "repl"])
        .timeout(crate::TIMEOUT);
    let output = command
        .write_stdin(
            "put k one two\nget k\n\nget other\nscan a 5\nnonsense\nscan a x\nexit\nget k\n",
        )
        .output()
        .unwrap();
    assert_status(&output, 1);
    assert_eq!(
        text(&output.stdout),
        "ok\none two\n(no such key)\nk\tone two\n"
    );
    let stderr = text(&output.stderr);
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(
        lines[0].starts_with("line 6: \"nonsense\" is not a command; get KEY"),
        "{stderr}"
    );
    assert!(
        lines[1].starts_with("line 7: \"x\" is no number"),
        "{stderr}"
    );
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_session_survives_a_server_that_is_killed_and_started_again() {
    let files = Files::new();
    let _b = Server::start(&files.file("b"));
    let mut a = Server::start(&files.file("a"));
    let mut command = dkvf();
    command.args(["client", "--config", path(&files.file("client")), "repl"]);
    let mut session = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = session.stdin.take().unwrap();
    let mut output = BufReader::new(session.stdout.take().unwrap());
    let mut errors = BufReader::new(session.stderr.take().unwrap());
    let line = |reader: &mut dyn BufRead| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    input.write_all(b"put k 1\n").unwrap();
    assert_eq!(line(&mut output), "ok\n");
    a.process.kill().unwrap();
    a.process.wait().unwrap();
    input.write_all(b"put k 2\n").unwrap();
    let error = line(&mut errors);
    assert!(
        error.starts_with("line 2: outcome unknown") && error.contains("server a: cannot connect"),
        "{error}"
    );
    let _again = Server::start(&files.file("a"));
    input.write_all(b"put k 3\nget k\n").unwrap();
    assert_eq!(line(&mut output), "ok\n");
    assert_eq!(line(&mut output), "3\n");
    drop(input);
    assert_eq!(
        session.wait().unwrap().code(),
        Some(1),
        "one command failed"
    );
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let files = Files::new();
    let folder = path(files.folder.path()).to_owned();
    let write = |name: &str, text: &str| std::fs::write(files.file(name), text).unwrap();
    write("unknown", "<config>\n<id>x</id>\n<bogus/></config>");
    write("cut", "<config><id>x");
    write("silent", "<config><id>0_0</id></config>");
    write(
        "engine",
        "<config>\n<id>0_0</id><protocol>eventual</protocol>\n<storage><engine>nosuch</engine></storage></config>",
    );
    write(
        "durable",
        "<config>\n<id>0_0</id><protocol>eventual</protocol>\n<durability>sync</durability></config>",
    );
    let table: &[(&str, i32, &[&str])] = &[
        ("absent", 2, &["absent.xml", "cannot be read"]),
        ("unknown", 2, &["unknown.xml:3:", "<bogus>", "allowed here"]),
        ("cut", 2, &["cut.xml:1:", "<id>", "add </id>"]),
        (
            "silent",
            2,
            &["silent.xml", "<protocol>", "--protocol", "eventual"],
        ),
        ("engine", 2, &["engine.xml:3:", "nosuch", "memory"]),
        ("durable", 2, &["durable.xml:3:", "<durability>", "none"]),
        ("client", 2, &["client.xml:1:", "<role>", "dkvf client"]),
    ];
    for (name, status, named) in table {
        let output = run(["server", "--config", &format!("{folder}/{name}.xml")]);
        assert_status(&output, *status);
        for word in *named {
            let stderr = text(&output.stderr);
            assert!(
                stderr.contains(word),
                "{name}: {word:?} is not in: {stderr}"
            );
        }
    }
    let _taken = TcpListener::bind(("127.0.0.1", files.ports[0][2])).unwrap();
    let output = run(["server", "--config", path(&files.file("a"))]);
    assert_status(&output, 1);
    assert!(
        text(&output.stderr).contains("<client_port>"),
        "{}",
        text(&output.stderr)
    );
}
