# Where

variable "project" {
  description = "Id of the Google Cloud project that becomes a Mailyard. One of its own is best: what is made here has fixed names."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project is not a project id: write 6 to 30 lower-case letters, digits and hyphens, as gcloud projects list prints it."
  }
}

variable "region" {
  description = "Region of the functions, the schedules, the key and, unless firestore_location says otherwise, the mirror. Where it is cannot be changed later without a new mirror."
  type        = string
  default     = "us-central1"
  nullable    = false

  validation {
    condition     = contains(local.regions, var.region)
    error_message = "region ${var.region} has no Cloud Functions: write one that has, such as us-central1 or europe-west1; gcloud functions regions list prints them all."
  }
}

variable "firestore_location" {
  description = "Location of the mirror if it is not the region: nam5 and eur3 are spread over several regions. Firestore never moves a database."
  type        = string
  default     = null

  validation {
    condition     = var.firestore_location == null || contains(concat(local.regions, ["nam5", "nam7", "eur3"]), coalesce(var.firestore_location, "none"))
    error_message = "firestore_location is none of Firestore's: write nam5, eur3 or a region such as europe-west1, or leave it out."
  }
}

variable "database" {
  description = "Id of the Firestore database that holds the mirror. Only (default) has a free quota."
  type        = string
  default     = "(default)"
  nullable    = false

  validation {
    condition     = var.database == "(default)" || can(regex("^[a-z][a-z0-9-]{2,61}[a-z0-9]$", var.database))
    error_message = "database is not a database id: write (default), or 4 to 63 lower-case letters, digits and hyphens."
  }
}

variable "archive" {
  description = "The functions' source, as make package builds it: the same to the byte for the same source."
  type        = string
  default     = "../.local/functions.zip"
  nullable    = false

  validation {
    condition     = fileexists(var.archive)
    error_message = "archive ${var.archive} is not there: run make package, which builds it."
  }
}

variable "catalogue" {
  description = "The list of lanes. The functions have the one in shared/lane built in, so another is for tests alone."
  type        = string
  default     = "../shared/lane/catalogue.json"
  nullable    = false

  validation {
    condition     = fileexists(var.catalogue)
    error_message = "catalogue ${var.catalogue} is not there: leave catalogue out, and run Terraform in the directory terraform of Mailyard's source."
  }
}

# Gmail and who links mailboxes

variable "oauth_client_id" {
  description = "Client id of the OAuth client by which mailboxes are read. The README tells how to make one."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^ ]+\\.apps\\.googleusercontent\\.com$", var.oauth_client_id))
    error_message = "oauth_client_id is not an OAuth client's id: write the one that ends with .apps.googleusercontent.com, from Google Auth Platform, Clients."
  }
}

variable "oauth_client_secret" {
  description = "Secret of that OAuth client. It goes to Secret Manager and is neither in state nor in plan."
  type        = string
  nullable    = false
  ephemeral   = true

  validation {
    condition     = length(trimspace(var.oauth_client_secret)) > 0
    error_message = "oauth_client_secret is empty: write the secret of the OAuth client, from Google Auth Platform, Clients."
  }
}

variable "connect_key" {
  description = "Signs the links by which mailboxes are linked and digests are left. Made at random unless given; the app's backend reads it from Secret Manager."
  type        = string
  default     = ""
  nullable    = false
  ephemeral   = true

  validation {
    condition     = var.connect_key == "" || length(var.connect_key) >= 32
    error_message = "connect_key is too short to be safe: write at least 32 random characters, as openssl rand -hex 32 prints them, or leave it out."
  }
}

variable "keyset" {
  description = "Encrypts refresh tokens: what mailyard keyset new prints. It is wrapped by the key in Cloud KMS, so no secret by itself. Needed with the first apply; make deploy makes one then."
  type        = string
  default     = null

  validation {
    condition     = var.keyset == null || can(regex("^([A-Za-z0-9+/]+=*|\\{.*\\})$", trimspace(coalesce(var.keyset, "none"))))
    error_message = "keyset is not a wrapped keyset: write what go run ./scripts/mailyard keyset new prints."
  }
}

variable "secret_versions" {
  description = "Count one up to have a secret's new value written; unchanged, what is given is not looked at. alert_webhook 0: there is no webhook."
  type = object({
    oauth_client_secret = optional(number, 1)
    connect_key         = optional(number, 1)
    keyset              = optional(number, 1)
    alert_webhook       = optional(number, 0)
  })
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for name, n in var.secret_versions : n == floor(n) && n >= (name == "alert_webhook" ? 0 : 1)])
    error_message = "secret_versions counts from 1 in whole numbers; only alert_webhook may be 0."
  }
}

variable "delegation" {
  description = "Whether Workspace domains delegate mailboxes: makes the service account gmail-delegation, whose numeric id a domain's administrator authorizes."
  type        = bool
  default     = false
  nullable    = false
}

variable "connect_origins" {
  description = "Origins of the app to which a person may be sent back after linking, as https://app.example.com."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for o in var.connect_origins : can(regex("^https://[^/?#@ ]+$", o))])
    error_message = "connect_origins holds something that is no origin: write each as https://app.example.com, without a path."
  }
}

variable "public_url" {
  description = "URL under which a load balancer of yours brings /Connect and /Unsubscribe to the two public functions. Without it each has its function's own URL."
  type        = string
  default     = null

  validation {
    condition     = var.public_url == null || can(regex("^https://[^/?#@ ]+(/[^?# ]*[^/?# ])?$", coalesce(var.public_url, "none")))
    error_message = "public_url is not an https URL: write it as https://mail.example.com, without a slash or a query at its end."
  }
}

variable "console_members" {
  description = "Who may open the operators' page, as IAM names them: group:ops@example.com, user:kim@example.com."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for m in var.console_members : can(regex("^(user|group|domain|serviceAccount):[^ ]+$", m))])
    error_message = "console_members holds something else than a person, a group or a service account: write group:ops@example.com or user:kim@example.com. The page is never public."
  }
}

# Lanes and their delivery

variable "optional_lanes" {
  description = "Keys of the catalogue's optional lanes that are on, such as message-labeled."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(setsubtract(var.optional_lanes, local.optional_lane_keys)) == 0
    error_message = "optional_lanes names what is no optional lane: write only ${join(", ", local.optional_lane_keys)}."
  }
}

variable "delivery" {
  description = <<-EOT
    Other delivery values than the catalogue's, by lane (or ingest, resync, digest-send), under the catalogue's own names:
    instances, concurrency, minBackoffSeconds, maxBackoffSeconds, ackDeadlineSeconds, maxDeliveryAttempts; and cpu (1).
    maxRetries is not among them: the functions count retries by the catalogue that is built into them.
  EOT
  type        = map(map(number))
  default     = {}
  nullable    = false

  validation {
    condition     = length(setsubtract(keys(var.delivery), keys(local.routes_as_written))) == 0
    error_message = "delivery names a lane that there is not: write ${join(", ", keys(local.routes_as_written))}."
  }

  validation {
    condition     = alltrue(flatten([for values in var.delivery : [for name in keys(values) : contains(keys(local.delivery_bounds), name)]]))
    error_message = "delivery has a value that cannot be set here: write ${join(", ", keys(local.delivery_bounds))}."
  }

  validation {
    condition = alltrue(flatten([for values in var.delivery : [for name, n in values :
      n >= local.delivery_bounds[name].min && n <= local.delivery_bounds[name].max if contains(keys(local.delivery_bounds), name)
    ]]))
    error_message = "delivery has a value out of range: write ${join(", ", [for name, b in local.delivery_bounds : "${name} from ${b.min} to ${b.max}"])}."
  }

  validation {
    condition     = alltrue(flatten([for values in var.delivery : [for name, n in values : name == "cpu" || n == floor(n)]]))
    error_message = "delivery has a fraction where there is none: write whole numbers, but for cpu."
  }

  validation {
    condition = alltrue([for key, values in var.delivery :
      lookup(values, "concurrency", local.routes_as_written[key].delivery.concurrency) == 1 || lookup(values, "cpu", 1) >= 1
      if contains(keys(local.routes_as_written), key)
    ])
    error_message = "delivery gives a function less than one CPU and more than one request at a time, which Cloud Run refuses: write cpu = 1 or more, or concurrency = 1."
  }

  validation {
    condition = alltrue([for key, values in var.delivery :
      lookup(values, "minBackoffSeconds", local.routes_as_written[key].delivery.minBackoffSeconds) <= lookup(values, "maxBackoffSeconds", local.routes_as_written[key].delivery.maxBackoffSeconds)
      if contains(keys(local.routes_as_written), key)
    ])
    error_message = "delivery has a minBackoffSeconds above its maxBackoffSeconds: write a smaller one, or raise maxBackoffSeconds too."
  }

  # A function stops two seconds before the deadline that it knows, the catalogue's: with a shorter one
  # Pub/Sub would deliver again what is still being worked on.
  validation {
    condition = alltrue([for key, values in var.delivery :
      lookup(values, "ackDeadlineSeconds", local.routes_as_written[key].delivery.ackDeadlineSeconds) >= local.routes_as_written[key].delivery.ackDeadlineSeconds
      if contains(keys(local.routes_as_written), key)
    ])
    error_message = "delivery has an ackDeadlineSeconds below the catalogue's, by which the function keeps time: write one that is not smaller, or change it in the catalogue."
  }

  # The functions give up after 1 + maxRetries runs; Pub/Sub's own count is the net below.
  validation {
    condition = alltrue([for key, values in var.delivery :
      lookup(values, "maxDeliveryAttempts", local.routes_as_written[key].delivery.maxDeliveryAttempts) >= local.routes_as_written[key].delivery.maxRetries + 2
      if contains(keys(local.routes_as_written), key)
    ])
    error_message = "delivery has a maxDeliveryAttempts that would cut the function's own retries short: write at least maxRetries + 2."
  }
}

variable "retention_days" {
  description = "How many days Pub/Sub keeps a message that no function acknowledges. Dead letters stay on -inspect for 31, the most there is."
  type        = number
  default     = 7
  nullable    = false

  validation {
    condition     = var.retention_days >= 1 && var.retention_days <= 31 && var.retention_days == floor(var.retention_days)
    error_message = "retention_days is not a number of days that Pub/Sub keeps: write 1 to 31."
  }
}

variable "content" {
  description = "What is kept of a message: full, or headers, which keeps no bodies."
  type        = string
  default     = "full"
  nullable    = false

  validation {
    condition     = contains(["full", "headers"], var.content)
    error_message = "content is neither full nor headers: write one of them."
  }
}

# Digests

variable "digest_sender" {
  description = "Address of the linked mailbox that sends the digests. Without it the schedule of the digests is paused."
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = var.digest_sender == "" || can(regex("^[^@ ]+@[^@ ]+$", var.digest_sender))
    error_message = "digest_sender is not an address: write it as digests@example.com, or leave it out."
  }
}

variable "digest_zone" {
  description = "Time zone of the digests' days, by its name in the tz database."
  type        = string
  default     = "UTC"
  nullable    = false

  validation {
    condition     = var.digest_zone == "UTC" || can(regex("^[A-Za-z]+(/[A-Za-z0-9_+-]+)+$", var.digest_zone))
    error_message = "digest_zone is not a time zone: write one as Europe/Berlin."
  }
}

variable "digest_hour" {
  description = "The hour, in digest_zone, at which the day's digests begin."
  type        = number
  default     = 6
  nullable    = false

  validation {
    condition     = var.digest_hour >= 0 && var.digest_hour <= 23 && var.digest_hour == floor(var.digest_hour)
    error_message = "digest_hour is not an hour: write 0 to 23."
  }
}

# Watching

variable "notification_channels" {
  description = "Channels of Cloud Monitoring that alerts go to, as projects/P/notificationChannels/N. Without any, incidents show in the Cloud Console alone."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for c in var.notification_channels : can(regex("^projects/[^/]+/notificationChannels/[0-9]+$", c))])
    error_message = "notification_channels holds something else: write projects/P/notificationChannels/N, as gcloud beta monitoring channels list prints it."
  }
}

variable "alert_webhook" {
  description = "Webhook of a Discord, Slack or Google Chat channel that dead letters are told to. Set secret_versions.alert_webhook to 1 with it."
  type        = string
  default     = ""
  nullable    = false
  ephemeral   = true

  validation {
    condition     = var.alert_webhook == "" || can(regex("^https://(discord\\.com|discordapp\\.com|hooks\\.slack\\.com|chat\\.googleapis\\.com)/.+$", var.alert_webhook))
    error_message = "alert_webhook is not a webhook of Discord, Slack or Google Chat: copy its https URL from the channel's settings."
  }

  validation {
    condition     = (var.alert_webhook == "") == (var.secret_versions.alert_webhook == 0)
    error_message = "alert_webhook and secret_versions.alert_webhook do not agree on whether there is one: write secret_versions = { alert_webhook = 1 } with a webhook, and leave both out without."
  }
}

variable "backlog_alert_seconds" {
  description = "How old the oldest message of a lane may get before somebody is told. It is above the longest back-off, which no alert should wait for."
  type        = number
  default     = 1800
  nullable    = false

  validation {
    condition     = var.backlog_alert_seconds >= 600 && var.backlog_alert_seconds <= 86400
    error_message = "backlog_alert_seconds is out of range: write 600 to 86400; a retry alone may take 600."
  }
}

variable "playbook_url" {
  description = "Where your operators read the README: what every alert links to, with its section. Without it alerts name file and section."
  type        = string
  default     = "README.md"
  nullable    = false
}
