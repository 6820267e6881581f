;; Needs exceptions.
(component
  (core module
    (tag $tag)
    (func (throw $tag))))
