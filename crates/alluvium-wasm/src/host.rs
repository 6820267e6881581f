//! One engine for all plugins of a process.

use crate::error::Error;
use crate::instance::StoreData;
use crate::limits::{CORE_INSTANCES, MEMORIES, TABLE_ELEMENTS, TABLES};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

/// How long an epoch lasts: the grain of time limits.
pub(crate) const EPOCH: Duration = Duration::from_millis(10);
/// Plugins compiled at the same time. A compilation that never ends holds its place, so a few of
/// them cannot take the machine.
const COMPILERS: usize = 2;

/// What a host of plugins may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Instances that run at the same time; calls beyond wait.
    pub instances: u32,
    /// The largest memory limit that a plugin can be given, in bytes.
    pub max_memory: usize,
    /// The largest component that is admitted, in bytes.
    pub max_component: usize,
    /// Wall clock time for compiling a component.
    pub compile_time: Duration,
    /// How long a call waits for an instance when all are busy.
    pub wait: Duration,
    /// Bytes of each memory that stay with the process between two instances, where the kernel can
    /// tell which were touched (Linux 6.7 and later).
    pub keep_resident: usize,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            instances: 64,
            max_memory: 256 << 20,
            max_component: 64 << 20,
            // The largest guests known (Python, JavaScript) take 15 s of one core.
            compile_time: Duration::from_secs(120),
            wait: Duration::from_secs(30),
            keep_resident: 2 << 20,
        }
    }
}

/// The engine, its pool of instances and the clock that ends calls: one for each process.
pub struct Host {
    pub(crate) engine: Engine,
    /// Empty: plugins import nothing.
    pub(crate) linker: Linker<StoreData>,
    pub(crate) config: HostConfig,
    pub(crate) instances: Arc<Slots>,
    pub(crate) compilers: Arc<Slots>,
}

impl Host {
    /// Sets up an engine whose pool holds `config.instances` instances.
    pub fn new(config: HostConfig) -> Result<Arc<Self>, Error> {
        if config.instances == 0 || !(1 << 16..=1 << 32).contains(&config.max_memory) {
            return Err(Error::Config);
        }
        let engine = Engine::new(&engine_config(&config)).map_err(|source| Error::Engine {
            instances: config.instances,
            memory: config.max_memory,
            source,
        })?;
        start_ticker(engine.weak()).map_err(Error::Ticker)?;
        Ok(Arc::new(Self {
            linker: Linker::new(&engine),
            engine,
            instances: Slots::new(config.instances as usize),
            compilers: Slots::new(COMPILERS),
            config,
        }))
    }

    pub fn config(&self) -> &HostConfig {
        &self.config
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The engine's configuration. Proposals that no honest guest needs are off, above all those whose
/// implementation has had advisories; `admit` validates with the same set.
pub(crate) fn engine_config(host: &HostConfig) -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(512 << 10)
        .memory_init_cow(true)
        // A plugin's answer must not depend on the machine.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_gc(false)
        .wasm_function_references(false)
        .wasm_exceptions(false)
        .wasm_threads(false)
        .wasm_tail_call(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(host)));
    config
}

fn pool(host: &HostConfig) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(host.instances)
        .total_core_instances(host.instances.saturating_mul(CORE_INSTANCES))
        .total_memories(host.instances.saturating_mul(MEMORIES))
        .total_tables(host.instances.saturating_mul(TABLES))
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(host.max_memory);
    // Without the scan, kept bytes are cleared by writing all of them, which costs more than the page
    // faults it saves.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(host.keep_resident)
            .table_keep_resident(host.keep_resident.min(160 << 10));
    }
    pool
}

/// Advances the engine's epoch until the engine is gone.
fn start_ticker(engine: EngineWeak) -> std::io::Result<()> {
    let tick = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            thread::sleep(EPOCH);
        }
    };
    thread::Builder::new().name("plugin-epochs".to_owned()).spawn(tick).map(drop)
}

/// A bounded number of places.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

impl Slots {
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(count), freed: Condvar::new() })
    }

    /// Takes a place, waiting at most `wait` for one.
    pub fn take(self: &Arc<Self>, wait: Duration) -> Option<Slot> {
        let end = Instant::now().checked_add(wait);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            let left = match end {
                Some(end) => end.saturating_duration_since(Instant::now()),
                None => wait,
            };
            if left.is_zero() {
                return None;
            }
            (free, _) = self.freed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Some(Slot(Arc::clone(self)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::admit::features;

    #[test]
    fn the_engine_is_synchronous_and_as_narrow_as_the_gate() {
        let host = Host::new(HostConfig { instances: 1, ..HostConfig::default() }).unwrap();
        let engine = &host.engine;
        // Concurrency would make every call many times slower.
        assert!(!engine.get_concurrency_support());
        assert!(engine.get_epoch_interruption());
        assert_eq!(engine.get_cranelift_nan_canonicalization(), Some(true));
        assert!(engine.get_pooling_config().is_some());
        let beyond = engine.get_wasm_features() - features();
        assert!(beyond.is_empty(), "the engine allows more than the gate: {beyond:?}");
    }

    #[test]
    fn the_ticker_ends_with_its_engine() {
        let tickers = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let name =
                |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.unwrap().path().join("comm"));
            tasks.filter_map(|task| name(task).ok()).filter(|name| name.trim() == "plugin-epochs").count()
        };
        // Threads name themselves, and end, a moment later than they are told to.
        let becomes = |some: bool| {
            let end = Instant::now() + Duration::from_secs(10);
            while (tickers() > 0) != some && Instant::now() < end {
                thread::sleep(EPOCH);
            }
            (tickers() > 0) == some
        };
        let host = Host::new(HostConfig { instances: 1, ..HostConfig::default() }).unwrap();
        assert!(becomes(true));
        drop(host);
        assert!(becomes(false));
    }

    #[test]
    fn the_pool_has_room_for_interpreters() {
        // CPython has 38 core modules, QuickJS three memories and tables; here with some to spare.
        let fits = |modules: usize, memories: usize, tables: usize| {
            let host = Host::new(HostConfig { instances: 1, ..HostConfig::default() }).unwrap();
            let instances = |count, module| format!("(core instance (instantiate ${module}))").repeat(count);
            let rest = instances(modules - memories - tables, "plain");
            let text = format!(
                r#"(component (core module $plain) (core module $memory (memory 200)) (core module $table (table 20000 funcref))
                {} {} {rest})"#,
                instances(memories, "memory"),
                instances(tables, "table"),
            );
            let component = wasmtime::component::Component::from_binary(&host.engine, &wat::parse_str(text).unwrap())?;
            let data = StoreData {
                limiter: crate::limits::Limiter::new(&crate::Limits {
                    table_elements: 200_000,
                    ..crate::Limits::default()
                }),
            };
            let mut store = wasmtime::Store::new(&host.engine, data);
            store.limiter(|data| &mut data.limiter);
            store.set_epoch_deadline(1000);
            host.linker.instantiate(&mut store, &component).map(drop)
        };
        fits(64, 4, 8).unwrap();
        assert!(fits(65, 4, 8).is_err());
        assert!(fits(64, 5, 8).is_err());
        assert!(fits(64, 4, 9).is_err());
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let slots = Slots::new(1);
        let slot = slots.take(Duration::ZERO).unwrap();
        assert!(slots.take(Duration::from_millis(20)).is_none());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| slots.take(Duration::from_secs(20)).is_some());
            thread::sleep(Duration::from_millis(20));
            drop(slot);
            assert!(waiting.join().unwrap());
        });
        assert!(slots.take(Duration::MAX).is_some());
    }
}
