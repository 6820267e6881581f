//! One plugin instance, for one call: made, limited, entered and thrown away.
//!
//! Every call gets a fresh instance, which runs `configure` again. "The same input gives the same
//! output, always" is a promise, and an instance that lives on could keep what it saw: a counter, a
//! cache, another partition's records. It would also carry its leaks along.
//!
//! The price, by `examples/call_bench.rs` on two busy cores: about 10 µs for an instance, and for the
//! plugin `redact` 25 µs more for its `configure` and for page faults, in all 20 to 80 ns a row in a
//! call of 1,000 rows, beside the microseconds that reading and writing a row take. It holds only with
//! memory kept between instances (`HostConfig::keep_resident`): without, a call costs twice that.

use crate::error::{CallError, Function, PluginLabel, tame};
use crate::host::{EPOCH, Host};
use crate::limits::{Limiter, Limits};
use crate::output::OutputError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::Instance;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, WasmBacktrace};

/// What a store holds: no more than its limits, since plugins import nothing.
pub(crate) struct StoreData {
    pub limiter: Limiter,
}

/// Where a plugin's instances are made.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub host: Arc<Host>,
    pub plugin: PluginLabel,
    pub limits: Limits,
}

impl Sandbox {
    /// Runs `body` with a fresh store, once the host has a place for one. A panic on the way becomes
    /// an error: whatever a plugin returned, the process goes on.
    pub fn enter<T>(&self, body: impl FnOnce(&mut Session<'_>) -> Result<T, CallError>) -> Result<T, CallError> {
        let Some(_slot) = self.host.instances.take(self.host.config.wait) else {
            let instances = self.host.config.instances;
            let waited = self.host.config.wait.as_secs_f64();
            return Err(self.unavailable(format!("all {instances} instances were busy for {waited} s")));
        };
        self.guard(|| {
            let mut store = Store::new(&self.host.engine, StoreData { limiter: Limiter::new(&self.limits) });
            store.limiter(|data| &mut data.limiter);
            body(&mut Session { store, sandbox: self })
        })
    }

    /// Turns a panic of `body` into an error.
    pub fn guard<T>(&self, body: impl FnOnce() -> Result<T, CallError>) -> Result<T, CallError> {
        // Nothing that `body` touches outlives a panic: the store and all buffers are its own.
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let message = text.unwrap_or_else(|| "a panic without a message".to_owned());
            Err(CallError::Panicked { plugin: self.plugin.clone(), message: tame(&message) })
        })
    }

    pub fn unavailable(&self, problem: String) -> CallError {
        CallError::Unavailable { plugin: self.plugin.clone(), problem }
    }

    pub fn output(&self, function: Function, problem: OutputError) -> CallError {
        CallError::Output { plugin: self.plugin.clone(), function, problem }
    }
}

/// A store with the sandbox it belongs to.
pub(crate) struct Session<'a> {
    store: Store<StoreData>,
    sandbox: &'a Sandbox,
}

impl Session<'_> {
    /// Enters the plugin, which may return at most `output` bytes. The deadline is armed here: what
    /// went before (a wait for an instance, above all) is not the plugin's time.
    pub fn call<T>(
        &mut self,
        function: Function,
        output: usize,
        body: impl FnOnce(&mut Store<StoreData>) -> wasmtime::Result<T>,
    ) -> Result<T, CallError> {
        self.store.set_hostcall_fuel(output);
        self.store.set_epoch_deadline(ticks(self.sandbox.limits.time));
        body(&mut self.store).map_err(|error| self.explain(function, output, &error))
    }

    /// Finds the functions of an instance: none of the plugin's code runs.
    pub fn load<T>(&mut self, body: impl FnOnce(&mut Store<StoreData>) -> wasmtime::Result<T>) -> wasmtime::Result<T> {
        body(&mut self.store)
    }

    /// Makes an instance and finds its functions, whose types were seen to be right at admission.
    pub fn instance<T>(
        &mut self,
        start: impl FnOnce(&mut Store<StoreData>) -> wasmtime::Result<Instance>,
        load: impl FnOnce(&mut Store<StoreData>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<T, CallError> {
        let instance = self.call(Function::Start, 0, start)?;
        load(&mut self.store, &instance).map_err(|error| self.explain(Function::Start, 0, &error))
    }

    fn explain(&self, function: Function, output: usize, error: &wasmtime::Error) -> CallError {
        let plugin = self.sandbox.plugin.clone();
        let limiter = &self.store.data().limiter;
        if let Some(failure) = limiter.host_failure() {
            return self.sandbox.unavailable(format!("the machine gave no memory: {failure}"));
        }
        if error.is::<PoolConcurrencyLimitError>() {
            return self.sandbox.unavailable(format!("{error:#}"));
        }
        let limits = &self.sandbox.limits;
        let trap = error.downcast_ref::<Trap>();
        if trap == Some(&Trap::Interrupt) {
            return CallError::Timeout { plugin, function, limit: limits.time };
        }
        // An allocator that is refused memory traps sooner or later; the refusal is the cause.
        if let Some(wanted) = limiter.refused().filter(|_| trap.is_some() || function == Function::Start) {
            return CallError::Memory { plugin, function, wanted, limit: limits.memory };
        }
        match trap {
            Some(trap) => CallError::Trap { plugin, function, trap: trap_text(*trap, error) },
            None if function == Function::Start => {
                CallError::Trap { plugin, function, trap: tame(&format!("it cannot start: {error:#}")) }
            }
            None => self.sandbox.output(function, lift_problem(error, output)),
        }
    }
}

/// The trap, with the innermost functions when the component still has their names.
fn trap_text(trap: Trap, error: &wasmtime::Error) -> String {
    const SHOWN: usize = 3;
    let text = trap.to_string();
    let text = text.strip_prefix("wasm trap: ").unwrap_or(&text);
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames).unwrap_or_default();
    let names: Vec<_> = frames.iter().filter_map(|frame| frame.func_name()).take(SHOWN).collect();
    if names.is_empty() {
        return text.to_owned();
    }
    tame(&format!("{text} (in {})", names.join(", called by ")))
}

/// An error without a trap comes from reading the plugin's answer.
fn lift_problem(error: &wasmtime::Error, output: usize) -> OutputError {
    let problem = format!("{:#}", error.root_cause());
    // The engine's type for this is private; `output_limit` tests that its text stands.
    if problem.contains("fuel allocated for hostcalls") {
        return OutputError::TooLarge { limit: output };
    }
    OutputError::Unreadable { problem: tame(&problem) }
}

/// Epochs that a time limit lasts. One more, since the current one is already under way.
fn ticks(time: Duration) -> u64 {
    let ticks = time.as_millis().div_ceil(EPOCH.as_millis());
    u64::try_from(ticks).unwrap_or(u64::MAX - 1).saturating_add(1).min(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let host = Host::new(crate::HostConfig { instances: 1, ..crate::HostConfig::default() }).unwrap();
        let plugin = PluginLabel::new("p", "sha256:0".to_owned());
        let sandbox = Sandbox { host, plugin, limits: Limits::default() };
        let error = sandbox.enter::<()>(|_| panic!("at row {}", 7)).unwrap_err();
        assert_eq!(error.to_string(), "alluvium failed while it ran plugin 'p' (sha256:0): at row 7");
        assert_eq!(alluvium_core::Classified::class(&error), alluvium_core::ErrorClass::Bug);
        // Its place is free again.
        assert!(sandbox.enter(|_| Ok(())).is_ok());
    }

    #[test]
    fn a_deadline_is_never_zero_and_never_overflows() {
        assert_eq!(ticks(Duration::ZERO), 1);
        assert_eq!(ticks(Duration::from_millis(1)), 2);
        assert_eq!(ticks(Duration::from_secs(2)), 201);
        assert_eq!(ticks(Duration::MAX), u64::MAX / 2);
    }
}
