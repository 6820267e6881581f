;; Imports a clock.
(component
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance
    (export "now" (func (result u64)))))
  (instance $interface)
  (export "alluvium:plugin/column-transform@0.1.0" (instance $interface)))
