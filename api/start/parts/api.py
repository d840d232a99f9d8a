"""The options of an API process: of the REST application, the dispatcher and the monitor."""

from pathlib import Path

from api.http.app_settings import ApiSettings, Token
from api.start.parts.network import lab_service
from api.start.settings.settings import Settings, is_loopback
from dispatcher.changes.damping import Patience
from dispatcher.knowledge.usage import Quotas
from dispatcher.options import DispatcherOptions, Limit
from dispatcher.reports.trace_address import spark_address
from dispatcher.requests.intake.permissions import Permission
from monitor.balancing.balancer import BalancerOptions
from monitor.balancing.draining import DrainFirst
from monitor.balancing.forecast import ForecastOptions
from monitor.balancing.policy import Policy
from monitor.balancing.predictive import MoveCosts, PredictiveOptions, PredictivePolicy
from monitor.balancing.restraint import RestraintOptions
from monitor.balancing.sizing import SizingOptions
from monitor.balancing.thesis import ThesisOptions, ThesisPolicy
from monitor.jobs.scheduler import JobOptions

OTHER_QUOTA = 2 << 30
"""Bytes of the database of an etcd that is not the service's own: etcd's own default."""


def api_settings(settings: Settings) -> ApiSettings:
    """The settings of the REST application."""
    limits, http = settings.limits, settings.http
    operators = (Token(each.get_secret_value(), "operator") for each in settings.tokens.operator)
    hosts = (
        Token(each.get_secret_value(), "host", host) for host, each in settings.tokens.hosts.items()
    )
    return ApiSettings(
        tokens=(*operators, *hosts),
        max_body=limits.body,
        max_requests=limits.calls,
        max_streams=limits.streams,
        max_host_streams=limits.host_streams,
        default_wait=limits.wait,
        max_wait=max(limits.wait, 60.0),
        max_kept_answers=settings.keep.answers,
        max_series=settings.keep.series,
        names=_names(settings),
        any_address=not is_loopback(settings.listen),
        origins=http.origins,
        proxies=http.proxies,
        max_connections=http.connections,
        max_address_connections=http.address_connections,
        reserve=http.reserve,
        head_timeout=http.head_timeout,
        body_timeout=http.body_timeout,
        send_timeout=http.send_timeout,
        idle_timeout=http.idle_timeout,
        drain=settings.times.drain,
        lab=lab_service(settings),
    )


def _names(settings: Settings) -> tuple[str, ...]:
    """The names of the API: those that are given and, if callers need no token, its address."""
    given = settings.http.names
    return given if settings.tokens.given and not given else (settings.listen, *given)


def dispatcher_options(settings: Settings, node: str) -> DispatcherOptions:
    """The options of a dispatcher."""
    limits, times, keep = settings.limits, settings.times, settings.keep
    return DispatcherOptions(
        node=node,
        plan=settings.plan,
        partitions=settings.partitions,
        mode=settings.mode,
        window=limits.window,
        window_per_host=limits.host_window,
        queue=limits.queue,
        queue_per_host=limits.host_queue,
        rate=limits.rate or None,
        rate_per_host=limits.host_rate or None,
        finished_ttl=keep.finished_s,
        finished_records=keep.finished_count,
        finished_bytes=keep.finished_bytes,
        key_ttl=keep.key_s,
        keys=keep.key_count,
        key_bytes=keep.key_bytes,
        quota=settings.etcd.quota or OTHER_QUOTA,
        history=settings.etcd.history,
        work=limits.work or None,
        work_per_host=limits.host_work or None,
        max_filter=limits.filter,
        max_record=limits.record,
        max_page=limits.page,
        quotas=Quotas(
            limits.host_records or None,
            limits.host_bytes or None,
            limits.space_records or None,
            limits.space_bytes or None,
        ),
        permissions=tuple(
            Permission(rule.hosts, rule.spaces, rule.subscribe, rule.advertise)
            for rule in settings.permissions.rules
        ),
        southbound_limit=_southbound_limit(settings),
        southbound_outside=settings.southbound_placed == "outside",
        lease_ttl=times.dispatcher_lease,
        grace=times.grace,
        patience=Patience(
            down_after=times.switch_lost_after,
            absent_after=times.switch_absent_after,
            back_after=times.back_after,
            longest=times.back_after_longest,
        ),
        settled_after=settings.discovery.settled_after,
        hosts=settings.discovery.hosts,
        accept_after=settings.discovery.accept_after,
        traces=trace_place(settings),
        traces_bytes=limits.traces,
    )


def trace_place(settings: Settings) -> str:
    """The folder or the address that traces are written to; the address may have secrets."""
    to = settings.traces.to
    return to.get_secret_value() if to else str(settings.data_dir / "traces")


def job_options(settings: Settings) -> JobOptions | None:
    """How the Spark job is run; None if it is not."""
    jobs = settings.jobs
    if not jobs.every:
        return None
    place = trace_place(settings)
    return JobOptions(
        every=jobs.every,
        traces=spark_address(place) if "://" in place else str(Path(place).absolute()),
        folder=settings.data_dir.absolute() / "logs" / "jobs",
        kind=jobs.kind,
        mode=jobs.mode,
        time_limit=jobs.time_limit,
        window=jobs.window,
        master=jobs.master,
    )


def _southbound_limit(settings: Settings) -> Limit | None:
    """The most southbound processes that the settings allow."""
    ports = settings.openflow.ports
    if settings.data_plane == "onos":
        return Limit(1, "ONOS knows no masters, so one southbound process does all the work")
    if settings.openflow.role == "equal":
        return Limit(1, "with openflow.role = equal, switches do not keep them apart")
    if ports:
        return Limit(len(ports), "add ports to openflow.ports, and restart the service")
    return None


def _forecast(settings: Settings) -> ForecastOptions:
    """How the work of partitions is predicted."""
    return ForecastOptions(
        window=settings.balancing.window, at_once=settings.slices.at_once or None
    )


def balancing_policy(settings: Settings) -> Policy:
    """The policy that proposes moves of partitions. All drain configurators that are leaving."""
    given = settings.balancing
    if given.policy == "thesis":
        return DrainFirst(
            ThesisPolicy(ThesisOptions(given.threshold, given.window, given.period)),
        )
    return PredictivePolicy(
        PredictiveOptions(
            imbalance=given.imbalance,
            floor=given.floor,
            horizon=given.horizon,
            costs=MoveCosts(given.move_ms / 1e3, given.record_us / 1e6, given.entry_us / 1e6),
            forecast=_forecast(settings),
            restraint=RestraintOptions(given.rest, given.moves_per_minute),
        )
    )


def balancer_options(settings: Settings) -> BalancerOptions:
    """The options of the balancer of an API process."""
    given = settings.balancing
    return BalancerOptions(
        mode=given.mode,
        policy=given.policy,
        period=given.period,
        sizing=SizingOptions(
            smallest=given.min_configurators,
            largest=given.max_configurators,
            target=given.busy_target,
            grow_at=given.busy_limit,
            forecast=_forecast(settings),
        ),
    )
