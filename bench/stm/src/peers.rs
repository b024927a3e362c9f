//! iceoryx2: <https://iceoryx.io>.

use iceoryx2::prelude::*;

use crate::{Ends, counter_of, item};

fn node() -> Node<ipc::Service> {
    set_log_level(LogLevel::Error);
    NodeBuilder::new().create::<ipc::Service>().unwrap()
}

/// A name of this process alone.
fn name(what: &str) -> ServiceName {
    format!("loopscope-bench-{}-{what}", std::process::id()).as_str().try_into().unwrap()
}

pub fn polled(bytes: usize) -> Ends {
    Ends {
        sender: Box::new(move || {
            let node = node();
            let service = node.service_builder(&name("items")).publish_subscribe::<[u8]>();
            let service = service.open_or_create().unwrap();
            let publisher = service.publisher_builder().initial_max_slice_len(bytes);
            let publisher = publisher.create().unwrap();
            let mut buffer = vec![0; bytes];
            Box::new(move |counter| {
                _ = &node;
                let sample = publisher.loan_slice_uninit(bytes).unwrap();
                sample.write_from_slice(item(&mut buffer, counter)).send().unwrap();
            })
        }),
        receiver: Box::new(move || {
            let node = node();
            let service = node.service_builder(&name("items")).publish_subscribe::<[u8]>();
            let service = service.open_or_create().unwrap();
            let subscriber = service.subscriber_builder().create().unwrap();
            let mut copy = vec![0; bytes];
            Box::new(move || {
                _ = &node;
                let sample = subscriber.receive().unwrap()?;
                if bytes > 64 {
                    copy.copy_from_slice(&sample);
                    return Some(counter_of(&copy));
                }
                Some(counter_of(&sample))
            })
        }),
    }
}

/// The same, and an event for each item, which the reader waits for.
pub fn blocked(bytes: usize) -> Ends {
    let Ends { sender, receiver } = polled(bytes);
    Ends {
        sender: Box::new(move || {
            let mut send = sender();
            let node = node();
            let service = node.service_builder(&name("wakes")).event().open_or_create().unwrap();
            let notifier = service.notifier_builder().create().unwrap();
            Box::new(move |counter| {
                _ = &node;
                send(counter);
                notifier.notify().unwrap();
            })
        }),
        receiver: Box::new(move || {
            let mut receive = receiver();
            let node = node();
            let service = node.service_builder(&name("wakes")).event().open_or_create().unwrap();
            let listener = service.listener_builder().create().unwrap();
            Box::new(move || {
                _ = &node;
                receive().or_else(|| {
                    listener.blocking_wait_all(|_| ()).unwrap();
                    receive()
                })
            })
        }),
    }
}
