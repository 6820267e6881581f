;; A core module, not a component.
(module
  (memory (export "memory") 1)
  (func (export "alluvium:plugin/column-transform@0.1.0#describe") (result i32) (i32.const 0)))
