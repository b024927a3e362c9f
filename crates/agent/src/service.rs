//! The agent protocol's requests, each handed to the part that does it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use loopscope_clocksync::probe::{Counts, EdgeEnd, Traffic};
use loopscope_collect::LossReport;
use loopscope_kernel::recording::Recording;
use loopscope_time::source::read_counter;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::agent::Agent;
use crate::clock::{ClockError, Started};
use crate::environment;
use crate::host::{Host, HostError};
use crate::kernel::{Begun, KernelError};
use crate::proto::{
    AnswerPeersReply, AnswerPeersRequest, ChooseKernelReply, ChooseKernelRequest, DepartedReply,
    Departures, EnterPhaseRequest, Event, FinishKernelReply, FinishKernelRequest, FinishTraceReply,
    FinishTraceRequest, HelloReply, HelloRequest, KeepKernelReply, KeepKernelRequest, PeerEnd,
    ProbePeersReply, ProbePeersRequest, ReadClockReply, ReadClockRequest, SetReply, SetRequest,
    ShutdownReply, ShutdownRequest, StartClockReply, StartClockRequest, StartKernelReply,
    StartKernelRequest, StartReply, StartRequest, StopClockReply, StopClockRequest, StopPeersReply,
    StopPeersRequest, StopReply, StopRequest, TriggerReply, TriggerRequest, agent_server,
};
use crate::settings;
use crate::watched::Watched;

/// Longest grace, in seconds.
const GRACE_LIMIT_S: f64 = 3600.0;

pub(crate) struct Service {
    agent: Arc<Agent>,
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(agent: Arc<Agent>) -> Service {
        Service { agent }
    }

    fn host(&self) -> Result<Arc<Host>, Status> {
        self.agent.host.clone().ok_or_else(|| {
            Status::failed_precondition(
                "this agent is no host: it was started without --host and has no components",
            )
        })
    }
}

#[tonic::async_trait]
impl agent_server::Agent for Service {
    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let agent = self.agent.clone();
        let describe = move || {
            let host = agent.host.as_ref();
            let name = host.map(|host| host.name.as_str());
            let environment = environment::describe(
                name,
                &agent.ledger,
                &agent.program,
                agent.sha256.as_deref(),
                host.map(|host| host.clock.frequency()),
            );
            let environment_json = format!("{environment:#}\n");
            if let Some(host) = host {
                std::fs::write(host.folder.join("env.json"), &environment_json)
                    .map_err(|e| Status::internal(format!("cannot write env.json: {e}")))?;
            }
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let counter_note = host.and_then(|_| environment::counter_note()).unwrap_or_default();
            Ok(Response::new(HelloReply { version, environment_json, counter_note }))
        };
        tokio::task::block_in_place(describe)
    }

    async fn set(&self, request: Request<SetRequest>) -> Result<Response<SetReply>, Status> {
        let made =
            tokio::task::block_in_place(|| settings::make(&self.agent.ledger, request.get_ref()));
        made.map(Response::new).map_err(Status::failed_precondition)
    }

    type WatchStream = Replies<Event>;

    async fn watch(
        &self,
        request: Request<Streaming<EnterPhaseRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let host = self.host()?;
        let events = host.events.watch().ok_or_else(|| {
            Status::already_exists(format!("host {} is watched already", host.name))
        })?;
        Ok(Response::new(Box::pin(Watched::new(host, events, request.into_inner()))))
    }

    async fn start_clock(
        &self,
        request: Request<StartClockRequest>,
    ) -> Result<Response<StartClockReply>, Status> {
        let host = self.host()?;
        let request = request.into_inner();
        let started = tokio::task::block_in_place(|| host.start_clock(request))?;
        let mut reply = StartClockReply::default();
        match started {
            Started::Port(port) => reply.port = port.into(),
            Started::Answered(answered) => {
                reply.answered = answered.try_into().unwrap_or(u32::MAX);
            }
        }
        Ok(Response::new(reply))
    }

    async fn read_clock(
        &self,
        _: Request<ReadClockRequest>,
    ) -> Result<Response<ReadClockReply>, Status> {
        let clock = &self.host()?.clock;
        let (half_width, why) = clock.read()?;
        let half_width_ns = half_width.map(|bound| bound.ns());
        let now = clock.global().stamp(read_counter());
        Ok(Response::new(ReadClockReply { half_width_ns, why, now }))
    }

    async fn answer_peers(
        &self,
        request: Request<AnswerPeersRequest>,
    ) -> Result<Response<AnswerPeersReply>, Status> {
        let (host, request) = (self.host()?, request.into_inner());
        let logs = host.clock_logs();
        let port = tokio::task::block_in_place(|| host.clock.answer_peers(&request, &logs))?;
        Ok(Response::new(AnswerPeersReply { port: port.into() }))
    }

    async fn probe_peers(
        &self,
        request: Request<ProbePeersRequest>,
    ) -> Result<Response<ProbePeersReply>, Status> {
        let (host, request) = (self.host()?, request.into_inner());
        tokio::task::block_in_place(|| host.clock.probe_peers(request, &host.clock_logs()))?;
        Ok(Response::new(ProbePeersReply {}))
    }

    async fn stop_peers(
        &self,
        _: Request<StopPeersRequest>,
    ) -> Result<Response<StopPeersReply>, Status> {
        let host = self.host()?;
        let ends = tokio::task::block_in_place(|| host.clock.stop_peers())?;
        let end = |(name, EdgeEnd { counts, residuals })| {
            let (error, counts) = match counts {
                Ok(counts) => (String::new(), counts),
                Err(error) => (error.to_string(), Counts::default()),
            };
            let lost = by_name(&counts);
            let Counts { sent, answered, traffic, .. } = counts;
            let Traffic { packets, bytes } = traffic;
            let contradictions = residuals.contradictions;
            PeerEnd { name, error, sent, answered, lost, packets, bytes, contradictions }
        };
        Ok(Response::new(StopPeersReply { peers: ends.into_iter().map(end).collect() }))
    }

    async fn stop_clock(
        &self,
        _: Request<StopClockRequest>,
    ) -> Result<Response<StopClockReply>, Status> {
        let host = self.host()?;
        let counts = tokio::task::block_in_place(|| host.clock.stop())?;
        let lost = by_name(&counts);
        let Counts { sent, answered, traffic, .. } = counts;
        let Traffic { packets, bytes } = traffic;
        Ok(Response::new(StopClockReply { sent, answered, lost, packets, bytes }))
    }

    async fn start(&self, request: Request<StartRequest>) -> Result<Response<StartReply>, Status> {
        let host = self.host()?;
        let pid = tokio::task::block_in_place(|| host.start(request.into_inner()))?;
        Ok(Response::new(StartReply { pid }))
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<StopReply>, Status> {
        let request = request.into_inner();
        if !(0.0..=GRACE_LIMIT_S).contains(&request.grace_s) {
            return Err(Status::invalid_argument(format!(
                "a grace of {} s is not between 0 and {GRACE_LIMIT_S} s",
                request.grace_s
            )));
        }
        let grace = Duration::from_secs_f64(request.grace_s);
        let survivors = self.host()?.stop(&request.components, grace).await?;
        if survivors.is_empty() {
            Ok(Response::new(StopReply {}))
        } else {
            Err(Status::internal(survivors.join("; ")))
        }
    }

    async fn trigger(
        &self,
        request: Request<TriggerRequest>,
    ) -> Result<Response<TriggerReply>, Status> {
        let host = self.host()?;
        let given = |text: String| (!text.is_empty()).then_some(text);
        let TriggerRequest { stream, host: origin } = request.into_inner();
        let triggered = tokio::task::block_in_place(|| host.trigger(given(stream), given(origin)));
        Ok(Response::new(TriggerReply { triggered }))
    }

    async fn departed(
        &self,
        request: Request<Departures>,
    ) -> Result<Response<DepartedReply>, Status> {
        self.host()?.departed(request.get_ref())?;
        Ok(Response::new(DepartedReply {}))
    }

    async fn finish_trace(
        &self,
        _: Request<FinishTraceRequest>,
    ) -> Result<Response<FinishTraceReply>, Status> {
        let host = self.host()?;
        let finished = tokio::task::block_in_place(|| host.finish_trace());
        let LossReport { emitted, recorded, dropped, problems, unwritten, .. } =
            finished.map_err(|e| Status::internal(format!("host {}: {e}", host.name)))?;
        let unwritten = unwritten.into_iter().collect();
        Ok(Response::new(FinishTraceReply { emitted, recorded, dropped, problems, unwritten }))
    }

    async fn start_kernel(
        &self,
        request: Request<StartKernelRequest>,
    ) -> Result<Response<StartKernelReply>, Status> {
        let begin = || self.agent.start_kernel(request.get_ref());
        let Begun { recording, classes } = tokio::task::block_in_place(begin)?;
        let Recording { absent, threads_known, .. } = recording;
        Ok(Response::new(StartKernelReply { absent, threads_known, classes }))
    }

    async fn choose_kernel(
        &self,
        request: Request<ChooseKernelRequest>,
    ) -> Result<Response<ChooseKernelReply>, Status> {
        let ChooseKernelRequest { classes } = request.into_inner();
        tokio::task::block_in_place(|| self.agent.kernel.choose(classes));
        Ok(Response::new(ChooseKernelReply {}))
    }

    async fn keep_kernel(
        &self,
        request: Request<KeepKernelRequest>,
    ) -> Result<Response<KeepKernelReply>, Status> {
        self.agent.kernel.keep(Duration::from_nanos(request.get_ref().post_ns));
        Ok(Response::new(KeepKernelReply {}))
    }

    async fn finish_kernel(
        &self,
        _: Request<FinishKernelRequest>,
    ) -> Result<Response<FinishKernelReply>, Status> {
        let account = tokio::task::block_in_place(|| self.agent.kernel.finish())?;
        let account = account.ok_or_else(|| {
            Status::failed_precondition("the kernel's events are not being recorded")
        })?;
        let all = || account.classes.values().flat_map(|class| class.values());
        let recorded = all().map(|counts| counts.recorded).sum();
        let dropped = all().map(|counts| counts.dropped).sum();
        let replaced = all().map(|counts| counts.overwritten).sum();
        let problems = account.problems.clone();
        Ok(Response::new(FinishKernelReply { recorded, dropped, problems, replaced }))
    }

    async fn shutdown(
        &self,
        _: Request<ShutdownRequest>,
    ) -> Result<Response<ShutdownReply>, Status> {
        let agent = self.agent.clone();
        // A task of its own, which goes on when the client hangs up.
        let problems = tokio::spawn(async move {
            let problems = agent.close().await;
            // Without a receiver the agent is ending already.
            let _ = agent.ends.send("asked to");
            problems
        });
        let problems = problems.await.map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(ShutdownReply { problems }))
    }
}

/// Losses by the causes' names.
fn by_name(counts: &Counts) -> HashMap<String, u64> {
    counts.lost.iter().map(|(cause, &count)| (cause.to_string(), count)).collect()
}

impl From<HostError> for Status {
    fn from(error: HostError) -> Status {
        let text = error.to_string();
        match error {
            HostError::BadName(_) | HostError::Invalid { .. } => Status::invalid_argument(text),
            HostError::Exists(_) => Status::already_exists(text),
            HostError::Unknown(_) => Status::not_found(text),
            HostError::Clock(error) => error.into(),
            HostError::ClockPage { .. }
            | HostError::NotWatched { .. }
            | HostError::Lookup { .. }
            | HostError::Spawn { .. }
            | HostError::Phase { .. }
            | HostError::Trace { .. }
            | HostError::Folder { .. }
            | HostError::Ledger(_) => Status::failed_precondition(text),
        }
    }
}

impl From<KernelError> for Status {
    fn from(error: KernelError) -> Status {
        let text = error.to_string();
        match error {
            KernelError::Twice => Status::already_exists(text),
            KernelError::Name(_) | KernelError::Number(_) | KernelError::Filters(_) => {
                Status::invalid_argument(text)
            }
            KernelError::Tracefs(_)
            | KernelError::Mount(_)
            | KernelError::Ledger(_)
            | KernelError::Counter(_)
            | KernelError::NoHost
            | KernelError::Folder { .. }
            | KernelError::Namespaces(_)
            | KernelError::Cgroup(_)
            | KernelError::Recorder(_) => Status::failed_precondition(text),
        }
    }
}

impl From<ClockError> for Status {
    fn from(error: ClockError) -> Status {
        let text = error.to_string();
        match error {
            ClockError::Port(_)
            | ClockError::NoRole
            | ClockError::Key(_)
            | ClockError::Address { .. } => Status::invalid_argument(text),
            ClockError::Twice(_) => Status::already_exists(text),
            ClockError::NotRunning(_)
            | ClockError::NoPeers(_)
            | ClockError::Namespace { .. }
            | ClockError::Probe { .. }
            | ClockError::Page { .. } => Status::failed_precondition(text),
        }
    }
}
