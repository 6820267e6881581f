;; Imports a function under the name of the contract's types, from where only types may come.
(component
  (import "alluvium:plugin/types@0.1.0" (instance
    (export "now" (func (result u64)))))
  (instance $interface)
  (export "alluvium:plugin/column-transform@0.1.0" (instance $interface)))
