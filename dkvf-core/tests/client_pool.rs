//! The client side: requests outlive their connection, are done once, and end at their deadline.

mod common;

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use common::eventually;
use common::proxy::{Cut, Proxy};
use common::raw::Raw;
use common::site::{Running, Site};
use common::toy::{Answer, Ask, ToyClient, ToyMetadata, ToyProtocol, Verb};
use dkvf_core::config::Flush;
use dkvf_core::net::Address;
use dkvf_core::net::pool::{ClientPool, PoolOptions};
use dkvf_core::net::worker::Worker;
use dkvf_core::{
    Client, ClientContext, Code, Failure, Outcome, Protocol, Reason, ServerId, Topology,
};

const S0: ServerId = ServerId(0);

/// Runs a client program on a worker of its own and waits for its end.
struct Program {
    worker: Worker,
    addresses: Vec<Address>,
    topology: Topology,
    timeout: Duration,
    message_bytes_max: usize,
}

impl Program {
    fn new(addresses: impl IntoIterator<Item = std::net::SocketAddr>) -> Self {
        let addresses: Vec<Address> = addresses.into_iter().map(Address::Socket).collect();
        Program {
            topology: Topology::grid(addresses.len() as u16, 1),
            worker: Worker::start(0, "clients").expect("a thread"),
            addresses,
            timeout: Duration::from_secs(60),
            message_bytes_max: 1 << 20,
        }
    }

    fn of(nodes: &[Running]) -> Self {
        Program::new(nodes.iter().map(|node| node.client))
    }

    /// Starts `program`; what it returns comes through the channel.
    fn start<T, F>(
        &self,
        program: impl FnOnce(Rc<ClientPool<ToyMetadata>>) -> F + Send + 'static,
    ) -> std::sync::mpsc::Receiver<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (sender, receiver) = std::sync::mpsc::channel();
        let options = PoolOptions {
            topology: self.topology.clone(),
            addresses: self.addresses.clone(),
            protocol: ToyProtocol::NAME,
            timeout: self.timeout,
            flush: Flush::Adaptive,
            message_bytes_max: self.message_bytes_max,
        };
        self.worker.run(move |local| {
            let running = program(ClientPool::start(local, options));
            tokio::task::spawn_local(async move {
                let _ = sender.send(running.await);
            });
        });
        receiver
    }

    fn run<T, F>(
        &self,
        program: impl FnOnce(Rc<ClientPool<ToyMetadata>>) -> F + Send + 'static,
    ) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.start(program)
            .recv_timeout(common::DEADLINE)
            .expect("the program ends")
    }
}

fn session(pool: &Rc<ClientPool<ToyMetadata>>) -> ClientContext<ToyMetadata> {
    pool.session(0).1
}

async fn count(cx: &mut ClientContext<ToyMetadata>) -> Outcome<Vec<u64>> {
    let answer: Answer = cx.request(S0, Ask::to(Verb::Count)).await?;
    Ok(answer.numbers)
}

#[test]
fn many_sessions_share_one_connection_per_server() {
    let nodes = Site::new(2).start_all();
    let values = Program::of(&nodes).run(|pool| async move {
        let mut tasks = Vec::new();
        for replica in 0..2 {
            for n in 0..50u8 {
                let mut client = ToyClient::new(pool.session(replica).1);
                tasks.push(tokio::task::spawn_local(async move {
                    let key = bytes::Bytes::from(vec![n; 3]);
                    client.put(key.clone(), key.clone()).await?;
                    Outcome::Ok(client.get(key.clone()).await? == Some(key))
                }));
            }
        }
        let mut right = 0;
        for task in tasks {
            right += usize::from(task.await.expect("no panic") == Ok(true));
        }
        right
    });
    assert_eq!(values, 100);
    for node in &nodes {
        let status = node.status();
        assert_eq!((status.traffic.requests, status.node.sessions), (100, 50));
    }
}

#[test]
fn a_request_whose_connection_breaks_is_sent_again_and_done_once() {
    // Every connection is cut after another number of bytes, in either direction.
    let node = Site::new(1).start(0);
    let cuts = (0..60).flat_map(|n| {
        [
            Cut::forward(40 + n),
            Cut::backward(15 + n),
            Cut {
                forward: 200,
                backward: 200,
            },
        ]
    });
    let proxy = Proxy::start(node.client, cuts);
    let counts = Program::new([proxy.address()]).run(|pool| async move {
        let mut cx = session(&pool);
        let mut counts = Vec::new();
        for _ in 0..100 {
            counts.push(count(&mut cx).await);
        }
        counts
    });
    let expected: Vec<Outcome<Vec<u64>>> = (1..=100).map(|n| Ok(vec![n])).collect();
    assert_eq!(
        counts, expected,
        "each was done once, and its client got its own reply"
    );
    assert!(
        proxy.connections() > 10,
        "the connection did break: {}",
        proxy.connections()
    );
    assert_eq!(node.status().node.requests, 100);
}

#[test]
fn a_request_whose_server_was_replaced_is_unknown_and_not_done_again() {
    let mut site = Site::new(1);
    let node = site.start(0);
    let program = Program::new([node.client]);
    let pending = program.start(|pool| async move {
        let mut cx = session(&pool);
        assert_eq!(count(&mut cx).await, Ok(vec![1]));
        // Parked on the first server, which is lost.
        let waited: Outcome<Answer> = cx.request(S0, Ask::to(Verb::Until).first(1)).await;
        (waited.map(|_| ()), count(&mut cx).await)
    });
    eventually("it is parked", || node.status().node.parked == 1);
    drop(node);
    let node = site.start(0);
    let (waited, counted) = pending
        .recv_timeout(common::DEADLINE)
        .expect("the program ends");
    assert_eq!(waited, Err(Failure::Unknown));
    assert_eq!(
        counted,
        Ok(vec![1]),
        "the new server knows nothing of the first count"
    );
    assert_eq!(node.status().node.requests, 1, "only the second count");
}

#[test]
fn a_request_that_was_not_sent_to_the_lost_server_is_done_by_its_replacement() {
    let mut site = Site::new(1);
    site.unbind(0);
    let program = Program::new([site.client_address(0)]);
    let pending = program.start(|pool| async move { count(&mut session(&pool)).await });
    let node = site.start(0);
    let counted = pending
        .recv_timeout(common::DEADLINE)
        .expect("the program ends");
    assert_eq!(counted, Ok(vec![1]));
    assert_eq!(node.status().node.requests, 1);
}

#[test]
fn a_request_without_an_answer_is_unknown_after_its_deadline() {
    // A server that does not answer, one that is not there, and one that takes calls and says nothing.
    let node = Site::new(1).start(0);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nowhere = {
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        port.local_addr().expect("it is bound")
    };
    let mut program = Program::new([
        node.client,
        nowhere,
        silent.local_addr().expect("it is bound"),
    ]);
    program.timeout = Duration::from_millis(100);
    let answer: Outcome<Answer> =
        program.run(|pool| async move { session(&pool).request(S0, Ask::to(Verb::Silent)).await });
    assert_eq!(answer, Err(Failure::Unknown));
    let answers = program.run(|pool| async move {
        let mut cx = session(&pool);
        let asks = (1..3).map(|id| (ServerId(id), Ask::echo("anybody?")));
        let all: Outcome<Vec<Answer>> = cx.request_all(asks).await;
        (all, pool.last_error())
    });
    assert_eq!(answers.0, Err(Failure::Unknown));
    assert!(
        answers
            .1
            .expect("a reason")
            .contains("server 1_0: cannot connect")
    );
}

#[test]
fn a_refused_program_learns_why() {
    let node = Site::new(1).start(0);
    let mut program = Program::new([node.client, node.client]);
    program.topology = Topology::grid(1, 2);
    program.timeout = Duration::from_millis(100);
    let error = program.run(|pool| async move {
        let _: Outcome<Answer> = session(&pool).request(S0, Ask::echo("x")).await;
        pool.last_error()
    });
    assert!(
        error
            .expect("a reason")
            .contains("has 1 partitions, the caller's has 2")
    );
}

/// A reply that no server gives.
#[derive(Debug, PartialEq)]
struct Never;

impl TryFrom<Answer> for Never {
    type Error = ();
    fn try_from(_: Answer) -> Result<Self, ()> {
        Err(())
    }
}

#[test]
fn a_reply_of_another_kind_than_expected_is_unknown() {
    let node = Site::new(1).start(0);
    let outcome = Program::of(std::slice::from_ref(&node))
        .run(|pool| async move { session(&pool).request::<Never>(S0, Ask::echo("x")).await });
    assert_eq!(outcome, Err(Failure::Unknown), "it may have had an effect");
}

#[test]
fn a_parked_request_that_times_out_on_the_server_has_failed_without_effect() {
    let mut site = Site::with(1, |config| config.request_timeout_ms = 50);
    let node = site.start(0);
    let outcome: Outcome<Answer> = Program::new([node.client]).run(|pool| async move {
        session(&pool)
            .request(S0, Ask::to(Verb::Until).first(1))
            .await
    });
    assert_eq!(
        outcome,
        Err(Failure::Failed(Reason::Refused(Code::Timeout)))
    );
    assert_eq!(node.status().node.parked, 0);
}

#[test]
fn a_server_that_has_too_much_parked_says_so() {
    let mut site = Site::with(1, |config| config.parked_max = 5);
    let node = site.start(0);
    let refused = Program::new([node.client]).run(|pool| async move {
        let mut asked = Vec::new();
        for _ in 0..8 {
            let mut cx = session(&pool);
            asked.push(tokio::task::spawn_local(async move {
                cx.request::<Answer>(S0, Ask::to(Verb::Until).first(1))
                    .await
            }));
        }
        let mut opener = session(&pool);
        // The eight came first on the same connection.
        let opened: Outcome<Answer> = async {
            tokio::task::yield_now().await;
            opener.request(S0, Ask::to(Verb::Open).first(1)).await
        }
        .await;
        opened.expect("requests that need not wait are served");
        let mut refused = 0;
        for task in asked {
            match task.await.expect("no panic") {
                Ok(_) => {}
                Err(failure) => {
                    assert_eq!(failure, Failure::Failed(Reason::Refused(Code::Overloaded)));
                    refused += 1;
                }
            }
        }
        refused
    });
    assert_eq!(refused, 3);
}

#[test]
fn a_request_over_the_limit_is_not_sent_and_the_other_sessions_go_on() {
    let mut site = Site::with(1, |config| config.message_bytes_max = 1000);
    let node = site.start(0);
    let mut program = Program::new([node.client]);
    program.message_bytes_max = 1000;
    program.run(|pool| async move {
        let (mut large, mut small) = (session(&pool), session(&pool));
        // Before and after the connection is there.
        for _ in 0..2 {
            let outcome: Outcome<Answer> = large.request(S0, Ask::to(Verb::Echo).payload(vec![1; 2000])).await;
            assert!(matches!(outcome, Err(Failure::Failed(Reason::NotSent(reason))) if reason.contains("message_bytes_max")));
            assert!(small.request::<Answer>(S0, Ask::echo("small")).await.is_ok());
        }
        assert_eq!(pool.last_error(), None, "the connection was never closed");
    });
}

#[test]
fn a_closed_pool_ends_its_requests_and_its_connections() {
    let node = Site::new(1).start(0);
    let program = Program::of(std::slice::from_ref(&node));
    let outcomes = program.run(|pool| async move {
        let (mut waiting, mut later) = (session(&pool), session(&pool));
        let waiting = tokio::task::spawn_local(async move {
            waiting.request::<Answer>(S0, Ask::to(Verb::Silent)).await
        });
        assert!(
            later
                .request::<Answer>(S0, Ask::echo("connected"))
                .await
                .is_ok()
        );
        pool.close();
        (
            waiting.await.expect("no panic"),
            later.request::<Answer>(S0, Ask::echo("too late")).await,
        )
    });
    assert_eq!(outcomes.0, Err(Failure::Unknown));
    assert!(matches!(
        outcomes.1,
        Err(Failure::Failed(Reason::NotSent(_)))
    ));
    eventually("its connection is closed", || {
        node.status().client_connections == 0
    });
}

#[test]
fn a_server_that_answers_nonsense_does_not_confuse_other_requests() {
    // A stranger that takes the handshake and writes garbage, then a reply to nothing, then the right one.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let program = Program::new([listener.local_addr().expect("it is bound")]);
    let outcome = program
        .start(|pool| async move { session(&pool).request::<Answer>(S0, Ask::echo("x")).await });
    let accept = || {
        let mut server = Raw::accepted(listener.accept().expect("it calls").0);
        server.frame().expect("a hello");
        server.welcome_with(1, 0);
        server.frame().expect("the request");
        server
    };
    let mut garbage = accept();
    garbage.write(&[0xff; 50]);
    garbage.expect_closed("garbage");
    let mut right = accept();
    let answer = Answer {
        payload: "x".into(),
        numbers: vec![5],
    };
    let mut frames = bytes::BytesMut::new();
    for (session, request) in [(9, 1), (0, 2), (0, 1), (0, 1)] {
        dkvf_core::net::wire::encode_reply(
            &mut frames,
            session,
            request,
            &Ok(Answer {
                numbers: vec![request],
                ..answer.clone()
            }),
        );
    }
    right.write(&frames);
    let outcome = outcome
        .recv_timeout(common::DEADLINE)
        .expect("the program ends");
    assert_eq!(outcome.expect("the right one").numbers, [1]);
}
