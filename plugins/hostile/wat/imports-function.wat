;; Imports a function of no interface.
(component
  (import "log" (func (param "message" string)))
  (instance $interface)
  (export "alluvium:plugin/column-transform@0.1.0" (instance $interface)))
