//! One fault a run, at the requests that matter.

use super::*;

/// One server for all cases: each has a prefix of its own.
static SERVER: LazyLock<S3> = LazyLock::new(S3::start);

/// Runs to the end while `rule` has its faults, which must have struck.
async fn survives(rule: impl FnMut(&Request) -> Option<Fault> + Send + 'static) -> (Proxy, String) {
    let proxy = Proxy::start(SERVER.port());
    let (_sandbox, mut bench, options) = workbench(proxy.port()).await;
    bench.produce(3, 0..200, 400).await;
    bench.run_to_end("before");
    bench.produce(3, 200..400, 400).await;
    let (mut rule, struck) = (rule, std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let counted = struck.clone();
    proxy.set_rule(move |request| {
        let fault = rule(request);
        counted.fetch_add(usize::from(fault.is_some()), std::sync::atomic::Ordering::SeqCst);
        fault
    });
    let mut run = bench.run("faulty", &["--until-end"], &[("ALLUVIUM_LOG", "info")]);
    let status = run.wait(PATIENCE);
    assert!(status.success(), "{status}: {}", run.err());
    assert!(struck.load(std::sync::atomic::Ordering::SeqCst) > 0, "the fault was never met");
    proxy.clear();
    // What is removed is what was tried out, and never a data file.
    for request in proxy.seen() {
        let removes = request.method == "DELETE" || request.is("POST", "?delete");
        let probe = request.path.contains("_alluvium_probe") || request.body.contains("_alluvium_probe");
        assert!(!removes || probe, "{request:?}");
    }
    directly(&mut bench, &options, &SERVER);
    bench.assert_exactly_once().await;
    (proxy, run.err())
}

/// The first `times` requests of `method` whose path ends with `end` meet `fault`.
fn on(method: &'static str, end: &'static str, fault: Fault, times: usize) -> impl FnMut(&Request) -> Option<Fault> {
    let mut left = times;
    move |request| {
        let path = request.path.split('?').next().unwrap_or_default();
        let hit = left > 0 && request.method == method && path.ends_with(end);
        left -= usize::from(hit);
        hit.then_some(fault)
    }
}

macro_rules! survives {
    ($($name:ident: $rule:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            survives($rule).await;
        }
    )*};
}

survives! {
    an_entry_lands_and_500_is_told: on("PUT", ".json", Fault::LandsThen(500), 1);
    every_entry_lands_and_503_is_told: on("PUT", ".json", Fault::LandsThen(503), usize::MAX);
    an_entry_lands_and_no_answer_comes: on("PUT", ".json", Fault::LandsThenHangs, 1);
    an_entry_is_cut_off: on("PUT", ".json", Fault::Resets, 1);
    an_entry_meets_500: on("PUT", ".json", Fault::Answers(500), 2);
    a_file_lands_and_500_is_told: on("PUT", ".parquet", Fault::LandsThen(500), 2);
    a_file_lands_and_no_answer_comes: on("PUT", ".parquet", Fault::LandsThenHangs, 1);
    a_file_is_cut_off: on("PUT", ".parquet", Fault::Resets, 3);
    reads_of_the_log_fail: on("GET", ".json", Fault::Answers(500), 3);
    the_log_is_listed_slowly: on("GET", "lake", Fault::Slow(Duration::from_millis(700)), usize::MAX);
}

/// Nothing but 429 for longer than the store's client has patience for: it is waited out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_429_passes() {
    let mut since = None;
    survives(move |request| {
        if request.is("PUT", ".parquet") {
            since.get_or_insert_with(Instant::now);
        }
        since.is_some_and(|since| since.elapsed() < Duration::from_secs(6)).then_some(Fault::Answers(429))
    })
    .await;
}
