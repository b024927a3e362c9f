//! The stream of a host's one watcher: phases that components are to begin, and events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::host::Host;
use crate::proto::{EnterPhaseRequest, Event};

/// The events. Requests are taken as long as it exists, also while nobody reads the events: a
/// component that prints much does not delay a phase.
pub(crate) struct Watched {
    events: UnboundedReceiver<Option<Event>>,
    /// Why requests cannot be read any more. `None` after they have ended.
    failure: Option<oneshot::Receiver<Status>>,
    reader: JoinHandle<()>,
}

impl Watched {
    pub(crate) fn new(
        host: Arc<Host>,
        events: UnboundedReceiver<Option<Event>>,
        mut requests: impl Stream<Item = Result<EnterPhaseRequest, Status>> + Send + Unpin + 'static,
    ) -> Watched {
        let (failed, failure) = oneshot::channel();
        let reader = tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                match request {
                    Ok(request) => host.begin_phase(request),
                    Err(status) => {
                        // Without a receiver the watcher has gone.
                        let _ = failed.send(status);
                        return;
                    }
                }
            }
        });
        Watched { events, failure: Some(failure), reader }
    }
}

impl Stream for Watched {
    type Item = Result<Event, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(failure) = &mut self.failure
            && let Poll::Ready(failed) = Pin::new(failure).poll(context)
        {
            self.failure = None;
            if let Ok(status) = failed {
                self.events.close();
                return Poll::Ready(Some(Err(status)));
            }
        }
        // `None` is the end, as is the end of the senders.
        Poll::Ready(ready!(self.events.poll_recv(context)).flatten().map(Ok))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
