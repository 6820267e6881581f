;; A component of the contract's version 0.0.9, which does not exist.
(component
  (core module $module
    (memory (export "memory") 1)
    (func (export "describe") (result i32) (i32.const 16)))
  (core instance $core (instantiate $module))
  (func $describe (result string)
    (canon lift (core func $core "describe") (memory (core memory $core "memory"))))
  (instance $interface (export "describe" (func $describe)))
  (export "alluvium:plugin/column-transform@0.0.9" (instance $interface)))
