;; Exports an asynchronous function.
(component
  (core module $module
    (func (export "run") (result i32) (i32.const 0))
    (func (export "callback") (param i32 i32 i32) (result i32) (i32.const 0)))
  (core instance $core (instantiate $module))
  (func $run async
    (canon lift (core func $core "run") async (callback (core func $core "callback"))))
  (instance $interface (export "run" (func $run)))
  (export "alluvium:plugin/column-transform@0.1.0" (instance $interface)))
