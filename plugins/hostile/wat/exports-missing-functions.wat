;; Exports the interface's name with nothing in it.
(component
  (instance $interface)
  (export "alluvium:plugin/column-transform@0.1.0" (instance $interface)))
