;; A component of another contract.
(component
  (core module $module
    (func (export "run")))
  (core instance $core (instantiate $module))
  (func $run (canon lift (core func $core "run")))
  (instance $interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $interface)))
