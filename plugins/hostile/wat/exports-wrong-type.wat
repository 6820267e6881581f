;; Exports the interface's name with a function of another type: `describe` returns a string.
(component
  (core module $module
    (memory (export "memory") 1)
    (func (export "describe") (result i32) (i32.const 16)))
  (core instance $core (instantiate $module))
  (func $describe (result string)
    (canon lift (core func $core "describe") (memory (core memory $core "memory"))))
  (instance $interface (export "describe" (func $describe)))
  (export "alluvium:plugin/column-transform@0.1.0" (instance $interface)))
