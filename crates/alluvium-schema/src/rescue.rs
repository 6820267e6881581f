//! The text of the rescued column.

/// Writes a JSON object nested like a record, from members given in the order of the record.
pub(crate) struct RescueWriter<'o> {
    out: &'o mut Vec<u8>,
    /// The objects that are open below the record, outermost first.
    open: Vec<u32>,
    /// Whether the innermost open object has a member.
    has_member: bool,
}

impl<'o> RescueWriter<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, open: Vec::new(), has_member: false }
    }

    /// Writes a member of the object that `parents` lead to: the ids and keys of the objects below
    /// the record, outermost first. Keys and value are JSON texts.
    pub(crate) fn member(&mut self, parents: &[(u32, &[u8])], key: &[u8], value: &[u8]) {
        let shared = self.open.iter().zip(parents).take_while(|(open, (id, _))| *open == id).count();
        while self.open.len() > shared {
            self.open.pop();
            // What is closed has a member, so its parent has one too.
            self.out.push(b'}');
        }
        for (id, key) in parents.iter().skip(shared) {
            self.key(key);
            self.out.push(b'{');
            self.open.push(*id);
            self.has_member = false;
        }
        self.key(key);
        self.out.extend_from_slice(value);
        self.has_member = true;
    }

    fn key(&mut self, key: &[u8]) {
        if self.has_member {
            self.out.push(b',');
        }
        self.out.extend_from_slice(key);
        self.out.push(b':');
    }

    pub(crate) fn finish(self) {
        self.out.resize(self.out.len() + self.open.len() + 1, b'}');
    }
}
