;; Needs garbage collected types.
(component
  (core module
    (type (struct (field i32)))
    (func (drop (struct.new_default 0)))))
